// Makes each call of the official Go SDK, its producer and its consumer library once. The embedded server is this
// program's HTTP proxy.
//
// Arguments: the access key's id and secret, and the version of the signature (v1 or v4). Standard output: a JSON
// object {call: null | "error code"}, with null for success. A call with another result is reported as "wrong: …".
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	sls "github.com/aliyun/aliyun-log-go-sdk"
	consumer "github.com/aliyun/aliyun-log-go-sdk/consumer"
	"github.com/aliyun/aliyun-log-go-sdk/producer"
	"github.com/go-kit/kit/log"
)

const (
	// Without a dot: ListProject goes to the endpoint itself, whose first label would be taken for a project.
	endpoint = "http://loghub"
	project  = "my-project"
	logstore = "app-log"
	begin    = 1700000000
	// The longest wait for anything.
	patience = 30 * time.Second
)

var (
	id, secret, version = os.Args[1], os.Args[2], sls.AuthVersionType(os.Args[3])
	keys                = sls.NewStaticCredentialsProvider(id, secret, "")
	client              = newClient()
)

type call struct {
	name string
	do   func() error
}

func newClient() sls.ClientInterface {
	made := sls.CreateNormalInterfaceV2(endpoint, keys)
	made.SetAuthVersion(version)
	made.SetRegion("cn-hangzhou")
	return made
}

// Returns the difference from the expected value, if any.
func differs(got, expected any) error {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		return fmt.Errorf("got %v, expected %v", got, expected)
	}
	return nil
}

func group(topic string, texts ...string) *sls.LogGroup {
	source := "10.0.0.1"
	made := &sls.LogGroup{Topic: &topic, Source: &source}
	for number, text := range texts {
		latency := fmt.Sprint(10 * number)
		made.Logs = append(made.Logs, producer.GenerateLog(uint32(begin+number), map[string]string{"message": text, "latency": latency}))
	}
	return made
}

func messages(groups *sls.LogGroupList) []string {
	found := []string{}
	for _, group := range groups.LogGroups {
		for _, log := range group.Logs {
			for _, content := range log.Contents {
				if content.GetKey() == "message" {
					found = append(found, content.GetValue())
				}
			}
		}
	}
	sort.Strings(found)
	return found
}

// Returns all messages of the logstore, read with one request for each shard.
func pulled(query string, compression int) ([]string, error) {
	shards, err := client.ListShards(project, logstore)
	found := []string{}
	for _, shard := range shards {
		cursor, failed := client.GetCursor(project, logstore, shard.ShardID, "begin")
		if failed != nil {
			return nil, failed
		}
		request := &sls.PullLogRequest{Project: project, Logstore: logstore, ShardID: shard.ShardID, Cursor: cursor,
			LogGroupMaxCount: 1000, Query: query, CompressType: compression}
		groups, _, failed := client.PullLogsWithQuery(request)
		if failed != nil {
			return nil, failed
		}
		found = append(found, messages(groups)...)
	}
	sort.Strings(found)
	return found, err
}

func pulledAre(query string, compression int, expected ...string) error {
	found, err := pulled(query, compression)
	return errors.Join(err, differs(found, expected))
}

func projects() []call {
	return []call{
		{"CreateProject", func() error { _, err := client.CreateProject(project, "first"); return err }},
		{"UpdateProject", func() error { _, err := client.UpdateProject(project, "second"); return err }},
		{"GetProject", func() error {
			got, err := client.GetProject(project)
			if err != nil {
				return err
			}
			return differs(got.Description, "second")
		}},
		{"CheckProjectExist", func() error {
			there, err := client.CheckProjectExist("nobody")
			return errors.Join(err, differs(there, false))
		}},
		{"ListProject", func() error {
			names, err := client.ListProject()
			return errors.Join(err, differs(names, []string{project}))
		}},
		{"ListProjectV2", func() error {
			found, count, total, err := client.ListProjectV2(0, 10)
			return errors.Join(err, differs([]any{len(found), count, total}, []any{1, 1, 1}))
		}},
	}
}

func logstores() []call {
	return []call{
		{"CreateLogStore", func() error { return client.CreateLogStore(project, logstore, 7, 2, true, 64) }},
		{"UpdateLogStore", func() error { return client.UpdateLogStore(project, logstore, 14, 2) }},
		{"GetLogStore", func() error {
			got, err := client.GetLogStore(project, logstore)
			if err != nil {
				return err
			}
			return differs([]any{got.TTL, got.ShardCount}, []any{14, 2})
		}},
		{"ListLogStore", func() error {
			names, err := client.ListLogStore(project)
			return errors.Join(err, differs(names, []string{logstore}))
		}},
		{"CheckLogstoreExist", func() error {
			there, err := client.CheckLogstoreExist(project, "nobody")
			return errors.Join(err, differs(there, false))
		}},
		{"UpdateLogStoreMeteringMode", func() error {
			return client.UpdateLogStoreMeteringMode(project, logstore, "ChargeByDataIngest")
		}},
		{"GetLogStoreMeteringMode", func() error {
			got, err := client.GetLogStoreMeteringMode(project, logstore)
			if err != nil {
				return err
			}
			return differs(got.MeteringMode, "ChargeByDataIngest")
		}},
		{"CreateIndex", func() error { return client.CreateIndex(project, logstore, *sls.CreateDefaultIndex()) }},
		{"UpdateIndex", func() error {
			line := &sls.IndexLine{Token: []string{";"}}
			return client.UpdateIndex(project, logstore, sls.Index{Line: line})
		}},
		{"GetIndex", func() error {
			got, err := client.GetIndex(project, logstore)
			if err != nil {
				return err
			}
			return differs(got.Line.Token, []string{";"})
		}},
		{"DeleteIndex", func() error { return client.DeleteIndex(project, logstore) }},
	}
}

func writes() []call {
	return []call{
		{"PutLogs", func() error { return client.PutLogs(project, logstore, group("web", "one first", "one second")) }},
		{"PutLogsWithCompressType", func() error {
			for _, compression := range []int{sls.Compress_LZ4, sls.Compress_ZSTD, sls.Compress_None} {
				if err := client.PutLogsWithCompressType(project, logstore, group("web", "two"), compression); err != nil {
					return err
				}
			}
			return nil
		}},
		{"PostLogStoreLogs", func() error {
			key := "ffffffffffffffffffffffffffffffff"
			return client.PostLogStoreLogs(project, logstore, group("db", "three"), &key)
		}},
		{"PutLogsWithMetricStoreURL", func() error {
			store := &sls.LogStore{Name: "metrics", TTL: 7, ShardCount: 1, TelemetryType: "Metrics"}
			if err := client.CreateLogStoreV2(project, store); err != nil {
				return err
			}
			return client.PutLogsWithMetricStoreURL(project, "metrics", group("", "a sample"))
		}},
	}
}

func reads() []call {
	every := []string{"one first", "one second", "three", "two", "two", "two"}
	ask := func(query string) *sls.GetLogRequest {
		return &sls.GetLogRequest{From: begin, To: begin + 10, Lines: 100, Query: query}
	}
	return []call{
		{"ListShards", func() error {
			shards, err := client.ListShards(project, logstore)
			return errors.Join(err, differs(len(shards), 2))
		}},
		{"GetCursor", func() error { _, err := client.GetCursor(project, logstore, 0, fmt.Sprint(begin)); return err }},
		{"GetCursorTime", func() error {
			cursor, err := client.GetCursor(project, logstore, 1, "begin")
			if err != nil {
				return err
			}
			when, err := client.GetCursorTime(project, logstore, 1, cursor)
			return errors.Join(err, differs(time.Since(when) < time.Hour, true))
		}},
		{"PullLogs", func() error {
			cursor, err := client.GetCursor(project, logstore, 1, "begin")
			if err != nil {
				return err
			}
			_, next, err := client.PullLogs(project, logstore, 1, cursor, "", 1000)
			if err != nil {
				return err
			}
			end, err := client.GetCursor(project, logstore, 1, "end")
			return errors.Join(err, differs(next, end))
		}},
		{"PullLogsV2", func() error {
			for _, compression := range []int{sls.Compress_LZ4, sls.Compress_ZSTD} {
				if err := pulledAre("", compression, every...); err != nil {
					return err
				}
			}
			return nil
		}},
		{"PullLogsWithQuery", func() error {
			return pulledAre("* | where cast(latency as bigint) > 5", sls.Compress_LZ4, "one second")
		}},
		{"GetLogs", func() error {
			got, err := client.GetLogs(project, logstore, "", begin, begin+10, "message: one", 100, 0, false)
			if err != nil {
				return err
			}
			return differs([]any{got.Count, got.IsComplete()}, []any{2, true})
		}},
		{"GetLogLines", func() error {
			got, err := client.GetLogLines(project, logstore, "", begin, begin+10, "two", 100, 0, false)
			if err != nil {
				return err
			}
			return differs(len(got.Lines), 3)
		}},
		{"GetLogsV2", func() error {
			got, err := client.GetLogsV2(project, logstore, ask("latency >= 10"))
			if err != nil {
				return err
			}
			return differs(got.Logs[0]["message"], "one second")
		}},
		{"GetLogsV3", func() error {
			got, err := client.GetLogsV3(project, logstore, ask("two or three | SELECT message, count(*) AS n GROUP BY message ORDER BY n DESC"))
			if err != nil {
				return err
			}
			facts := []any{got.Logs, got.Meta.HasSQL, got.Meta.ProcessedRows}
			return differs(facts, []any{[]map[string]string{{"message": "two", "n": "3"}, {"message": "three", "n": "1"}}, true, 4})
		}},
		{"GetLogsToCompleted", func() error {
			got, err := client.GetLogsToCompleted(project, logstore, "", begin, begin+10, "*", 100, 0, false)
			if err != nil {
				return err
			}
			return differs(got.Count, len(every))
		}},
		{"GetHistograms", func() error {
			got, err := client.GetHistograms(project, logstore, "", begin, begin+4, "*")
			if err != nil {
				return err
			}
			return differs([]any{got.Count, got.IsComplete()}, []any{len(every), true})
		}},
	}
}

func consumers() []call {
	made := sls.ConsumerGroup{ConsumerGroupName: "by-hand", Timeout: 60, InOrder: true}
	return []call{
		{"CreateConsumerGroup", func() error { return client.CreateConsumerGroup(project, logstore, made) }},
		{"UpdateConsumerGroup", func() error {
			made.Timeout = 90
			return client.UpdateConsumerGroup(project, logstore, made)
		}},
		{"ListConsumerGroup", func() error {
			groups, err := client.ListConsumerGroup(project, logstore)
			if err != nil {
				return err
			}
			return differs([]any{groups[0].ConsumerGroupName, groups[0].Timeout, groups[0].InOrder}, []any{"by-hand", 90, true})
		}},
		{"HeartBeat", func() error {
			shards, err := client.HeartBeat(project, logstore, "by-hand", "me", []int{})
			sort.Ints(shards)
			return errors.Join(err, differs(shards, []int{0, 1}))
		}},
		{"UpdateCheckpoint", func() error {
			end, err := client.GetCursor(project, logstore, 1, "end")
			if err != nil {
				return err
			}
			return client.UpdateCheckpoint(project, logstore, "by-hand", "me", 1, end, false)
		}},
		{"GetCheckpoint", func() error {
			end, _ := client.GetCursor(project, logstore, 1, "end")
			saved, err := client.GetCheckpoint(project, logstore, "by-hand")
			for _, one := range saved {
				if one.ShardID == 1 {
					return differs(one.CheckPoint, end)
				}
			}
			return errors.Join(err, errors.New("no checkpoint of shard 1"))
		}},
		{"DeleteConsumerGroup", func() error { return client.DeleteConsumerGroup(project, logstore, "by-hand") }},
		{"InitConsumerWorkerWithCheckpointTracker", func() error {
			return consume("readers", "", "one first", "one second", "three", "two", "two", "two")
		}},
		{"InitConsumerWorkerWithCheckpointTracker_Query", func() error {
			return consume("sifters", "* | where cast(latency as bigint) > 5", "one second")
		}},
	}
}

// Reads everything with the consumer library, as its own examples do, and checks its checkpoints.
func consume(name, query string, expected ...string) error {
	var lock sync.Mutex
	found, enough := []string{}, make(chan struct{})
	option := consumer.LogHubConfig{
		Endpoint: endpoint, CredentialsProvider: keys, Project: project, Logstore: logstore, Query: query,
		ConsumerGroupName: name, ConsumerName: "reader-1", CursorPosition: consumer.BEGIN_CURSOR,
		HeartbeatIntervalInSecond: 1, DataFetchIntervalInMs: 100, Logger: log.NewNopLogger(),
		AuthVersion: version, Region: "cn-hangzhou",
	}
	process := func(_ int, groups *sls.LogGroupList, tracker consumer.CheckPointTracker) (string, error) {
		lock.Lock()
		defer lock.Unlock()
		before := len(found)
		found = append(found, messages(groups)...)
		if before < len(expected) && len(found) >= len(expected) {
			close(enough)
		}
		return "", tracker.SaveCheckPoint(true)
	}
	worker := consumer.InitConsumerWorkerWithCheckpointTracker(option, process)
	worker.Start()
	select {
	case <-enough:
	case <-time.After(patience):
	}
	worker.StopAndWait()
	lock.Lock()
	defer lock.Unlock()
	sort.Strings(found)
	return differs(found, expected)
}

func shards() []call {
	return []call{
		{"SplitShard", func() error {
			made, err := client.SplitShard(project, logstore, 1, "c0000000000000000000000000000000")
			return errors.Join(err, differs(len(made), 3))
		}},
		{"MergeShards", func() error { _, err := client.MergeShards(project, logstore, 2); return err }},
		{"Producer", func() error { return produce(5000) }},
	}
}

// Sends logs with the producer, and counts them.
func produce(count int) error {
	config := producer.GetDefaultProducerConfig()
	config.Endpoint, config.CredentialsProvider = endpoint, keys
	config.AuthVersion, config.Region, config.Logger = version, "cn-hangzhou", log.NewNopLogger()
	config.GeneratePackId = true
	made, err := producer.NewProducer(config)
	if err != nil {
		return err
	}
	made.Start()
	for number := range count {
		one := producer.GenerateLog(begin+3600, map[string]string{"number": fmt.Sprint(number)})
		if err := made.SendLog(project, logstore, "produced", "10.0.0.2", one); err != nil {
			return err
		}
	}
	made.SafeClose()
	query := "__topic__: produced | SELECT count(DISTINCT number) AS n, count(*) AS m"
	got, err := client.GetLogsV3(project, logstore, &sls.GetLogRequest{From: begin + 3600, To: begin + 3601, Query: query})
	if err != nil {
		return err
	}
	return differs(got.Logs, []map[string]string{{"n": fmt.Sprint(count), "m": fmt.Sprint(count)}})
}

func endings() []call {
	return []call{
		{"ListDashboard", func() error { _, _, _, err := client.ListDashboard(project, "", 0, 10); return err }},
		{"ListMachineGroup", func() error { _, _, err := client.ListMachineGroup(project, 0, 10); return err }},
		{"DeleteLogStore", func() error { return client.DeleteLogStore(project, logstore) }},
		{"DeleteProject", func() error { return client.DeleteProject(project) }},
	}
}

// Returns the code of a refusal, or another error.
func told(err error) any {
	var refused *sls.Error
	var answered *sls.BadResponseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &answered):
		return fmt.Sprint("wrong: ", answered.RespBody)
	}
	return "wrong: " + err.Error()
}

func main() {
	outcomes := map[string]any{}
	for _, calls := range [][]call{projects(), logstores(), writes(), reads(), consumers(), shards(), endings()} {
		for _, one := range calls {
			outcomes[one.name] = told(one.do())
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcomes)
}
