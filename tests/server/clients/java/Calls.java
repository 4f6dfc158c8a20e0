import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import com.aliyun.openservices.aliyun.log.producer.LogProducer;
import com.aliyun.openservices.aliyun.log.producer.Producer;
import com.aliyun.openservices.aliyun.log.producer.ProducerConfig;
import com.aliyun.openservices.aliyun.log.producer.ProjectConfig;
import com.aliyun.openservices.log.Client;
import com.aliyun.openservices.log.common.ConsumerGroup;
import com.aliyun.openservices.log.common.ConsumerGroupShardCheckPoint;
import com.aliyun.openservices.log.common.Consts.CompressType;
import com.aliyun.openservices.log.common.Consts.CursorMode;
import com.aliyun.openservices.log.common.Index;
import com.aliyun.openservices.log.common.LogContent;
import com.aliyun.openservices.log.common.LogGroup;
import com.aliyun.openservices.log.common.LogGroupData;
import com.aliyun.openservices.log.common.LogItem;
import com.aliyun.openservices.log.common.LogStore;
import com.aliyun.openservices.log.common.QueriedLog;
import com.aliyun.openservices.log.common.Shard;
import com.aliyun.openservices.log.common.TagContent;
import com.aliyun.openservices.log.exception.LogException;
import com.aliyun.openservices.log.http.client.ClientConfiguration;
import com.aliyun.openservices.log.http.signer.SignVersion;
import com.aliyun.openservices.log.request.BatchPutLogsRequest;
import com.aliyun.openservices.log.request.GetLogStoreMeteringModeRequest;
import com.aliyun.openservices.log.request.ListDashboardRequest;
import com.aliyun.openservices.log.request.PullLogsRequest;
import com.aliyun.openservices.log.request.PutLogsRequest;
import com.aliyun.openservices.log.request.UpdateLogStoreMeteringModeRequest;
import com.aliyun.openservices.log.request.UpdateProjectRequest;
import com.aliyun.openservices.log.response.GetContextLogsResponse;
import com.aliyun.openservices.log.response.GetLogsResponse;
import com.aliyun.openservices.loghub.client.ClientWorker;
import com.aliyun.openservices.loghub.client.ILogHubCheckPointTracker;
import com.aliyun.openservices.loghub.client.config.LogHubConfig;
import com.aliyun.openservices.loghub.client.interfaces.ILogHubProcessor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Makes each call of the official Java SDK, its producer and its consumer library once against the embedded server, as
 * its document describes.
 *
 * <p>Arguments: the server's address and port, the access key's id and secret, and the version of the signature (V1 or
 * V4). The consumer library knows no proxy and no port. For it the server is at port 80 of an address, which the file of
 * {@code -Djdk.net.hosts.file} gives for the endpoint; without the file {@code ClientWorker} is left out. Standard
 * output: a JSON object, {call: null | "error code"}, with null for success. A call with another result is reported as
 * "wrong: …".
 */
public final class Calls {
  private static final String ENDPOINT = "http://loghub.test";
  private static final String P = "my-project";
  private static final String L = "app-log";
  private static final int T = 1_700_000_000;
  private static final int PATIENCE_SECONDS = 30;
  private static final Map<String, Object> OUTCOMES = new LinkedHashMap<>();

  private static String host;
  private static int port;
  private static String id;
  private static String secret;
  private static Client client;

  private interface Call {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    host = arguments[0];
    port = Integer.parseInt(arguments[1]);
    id = arguments[2];
    secret = arguments[3];
    client = client(SignVersion.valueOf(arguments[4]));
    projects();
    logstores();
    writes();
    reads();
    consumers();
    endings();
    System.out.println(JSON.toJSONString(OUTCOMES, SerializerFeature.WriteMapNullValue));
    // The SDKs leave threads running.
    System.exit(0);
  }

  private static Client client(SignVersion version) {
    ClientConfiguration configuration = new ClientConfiguration();
    configuration.setProxyHost(host);
    configuration.setProxyPort(port);
    configuration.setSignatureVersion(version);
    configuration.setRegion("cn-hangzhou");
    return new Client(ENDPOINT, id, secret, configuration);
  }

  private static void call(String name, Call call) {
    Object outcome = null;
    try {
      call.run();
    } catch (LogException error) {
      outcome = error.getErrorCode();
    } catch (Exception error) {
      outcome = "wrong: " + error;
    }
    OUTCOMES.put(name, outcome);
  }

  private static void same(Object got, Object expected) {
    if (!Objects.equals(got, expected)) {
      throw new IllegalStateException("got " + got + ", expected " + expected);
    }
  }

  private static void projects() {
    call("CreateProject", () -> client.CreateProject(P, "first"));
    call("updateProject", () -> client.updateProject(new UpdateProjectRequest(P, "second")));
    call("GetProject", () -> same(client.GetProject(P).GetProjectDescription(), "second"));
    call("ListProject", () -> same(client.ListProject().getProjects().get(0).getProjectName(), P));
  }

  private static void logstores() {
    call("CreateLogStore", () -> client.CreateLogStore(P, new LogStore(L, 7, 2)));
    call("UpdateLogStore", () -> client.UpdateLogStore(P, new LogStore(L, 14, 2)));
    call("GetLogStore", () -> {
      LogStore got = client.GetLogStore(P, L).GetLogStore();
      same(Arrays.asList(got.GetTtl(), got.GetShardCount()), Arrays.asList(14, 2));
    });
    call("ListLogStores", () -> same(client.ListLogStores(P, 0, 10).GetLogStores(), Arrays.asList(L)));
    call("updateLogStoreMeteringMode",
        () -> client.updateLogStoreMeteringMode(new UpdateLogStoreMeteringModeRequest(P, L, "ChargeByDataIngest")));
    call("getLogStoreMeteringMode",
        () -> same(client.getLogStoreMeteringMode(new GetLogStoreMeteringModeRequest(P, L)).getMeteringMode(),
            "ChargeByDataIngest"));
    call("CreateIndex", () -> client.CreateIndex(P, L, index(",")));
    call("UpdateIndex", () -> client.UpdateIndex(P, L, index(";")));
    call("GetIndex", () -> same(client.GetIndex(P, L).GetIndex().ToJsonString().contains("\";\""), true));
    call("DeleteIndex", () -> client.DeleteIndex(P, L));
  }

  private static String index(String token) {
    return "{\"line\": {\"token\": [\"" + token + "\"], \"caseSensitive\": false}, \"ttl\": 7}";
  }

  private static void writes() {
    call("PutLogs", () -> {
      for (CompressType compression : Arrays.asList(CompressType.LZ4, CompressType.ZSTD, CompressType.NONE)) {
        PutLogsRequest request = new PutLogsRequest(P, L, "web", "10.0.0.1", items("one", "two"), null);
        request.SetTags(tags());
        request.SetCompressType(compression);
        client.PutLogs(request);
      }
    });
    call("PutLogs_key", () -> client.PutLogs(
        new PutLogsRequest(P, L, "db", "10.0.0.1", items("three"), "ffffffffffffffffffffffffffffffff")));
    call("batchPutLogs", () -> {
      LogGroup group = new LogGroup(items("four"));
      client.batchPutLogs(new BatchPutLogsRequest(P, L, Arrays.asList(group, group), null));
    });
  }

  private static List<TagContent> tags() {
    return new ArrayList<>(Arrays.asList(new TagContent("__pack_id__", "5FA51423DDB54FDA-1")));
  }

  private static List<LogItem> items(String... texts) {
    List<LogItem> items = new ArrayList<>();
    for (String text : texts) {
      LogItem item = new LogItem(T + items.size());
      item.PushBack("message", text);
      item.PushBack("latency", String.valueOf(10 * items.size()));
      items.add(item);
    }
    return items;
  }

  private static void reads() {
    List<String> every = Arrays.asList("four", "four", "one", "one", "one", "three", "two", "two", "two");
    call("ListShard", () -> same(client.ListShard(P, L).GetShards().size(), 2));
    call("GetCursor", () -> client.GetCursor(P, L, 0, (long) T));
    call("GetCursorTime", () -> {
      String begin = client.GetCursor(P, L, 1, CursorMode.BEGIN).GetCursor();
      long age = System.currentTimeMillis() / 1000 - client.GetCursorTime(P, L, 1, begin).GetCursorTime();
      same(age < 3600, true);
    });
    call("pullLogs", () -> {
      for (CompressType compression : Arrays.asList(CompressType.LZ4, CompressType.ZSTD, CompressType.NONE)) {
        same(pulled("", compression), every);
      }
    });
    call("pullLogs_query", () -> same(
        pulled("* | where cast(latency as bigint) > 5", CompressType.LZ4), Arrays.asList("two", "two", "two")));
    call("BatchGetLog", () -> {
      String begin = client.GetCursor(P, L, 1, CursorMode.BEGIN).GetCursor();
      String next = client.BatchGetLog(P, L, 1, 1000, begin).GetNextCursor();
      same(next, client.GetCursor(P, L, 1, CursorMode.END).GetCursor());
    });
    call("GetLogs", () -> {
      GetLogsResponse got = client.GetLogs(P, L, T, T + 10, "", "message: three");
      same(Arrays.asList(got.GetCount(), got.IsCompleted()), Arrays.asList(1, true));
    });
    call("GetLogs_scan", () -> {
      GetLogsResponse got = client.GetLogs(P, L, T, T + 10, "", "one or three | where message = 'three'",
          100, 0, false, true, "mode=scan;");
      same(Arrays.asList(got.GetCount(), got.IsScanAll(), got.GetBeginOffset(), got.GetEndOffset(), got.GetQueryMode()),
          Arrays.asList(1, true, 0L, 4L, 2));
    });
    call("GetLogs_sql", () -> {
      GetLogsResponse got = client.GetLogs(P, L, T, T + 10, "", "one or three | SELECT count(*) AS n");
      same(Arrays.asList(contents(got.GetLogs().get(0)), got.isHasSQL(), got.getProcessedRow()),
          Arrays.asList("{n=4}", true, 4L));
    });
    call("executeLogstoreSql",
        () -> same(contents(client.executeLogstoreSql(P, L, T, T + 10, "* | SELECT max(message) AS m", false)
            .GetLogs().get(0)), "{m=two}"));
    call("GetProjectLogs", () -> same(contents(client.GetProjectLogs(P,
        "SELECT count(*) AS n FROM \"" + L + "\" WHERE __time__ >= " + T).GetLogs().get(0)), "{n=9}"));
    call("GetHistograms", () -> same(client.GetHistograms(P, L, T, T + 4, "", "*").GetTotalCount(), 9L));
    call("getContextLogs", () -> {
      QueriedLog found = client.GetLogs(P, L, T, T + 10, "", "one|with_pack_meta").GetLogs().get(0);
      GetContextLogsResponse got = client.getContextLogs(
          P, L, field(found, "__tag__:__pack_id__"), field(found, "__pack_meta__"), 10, 10);
      same(got.getTotalLines() >= 2, true);
    });
  }

  private static List<String> pulled(String query, CompressType compression) throws LogException {
    List<String> found = new ArrayList<>();
    for (Shard shard : client.ListShard(P, L).GetShards()) {
      String begin = client.GetCursor(P, L, shard.GetShardId(), CursorMode.BEGIN).GetCursor();
      PullLogsRequest request = new PullLogsRequest(P, L, shard.GetShardId(), 1000, begin);
      request.setCompressType(compression);
      if (!query.isEmpty()) {
        request.setQuery(query);
        request.setPullMode("scan_on_stream");
      }
      found.addAll(messages(client.pullLogs(request).getLogGroups()));
    }
    Collections.sort(found);
    return found;
  }

  private static List<String> messages(List<LogGroupData> groups) throws LogException {
    List<String> found = new ArrayList<>();
    for (LogGroupData group : groups) {
      for (LogItem item : group.GetAllLogs()) {
        for (LogContent content : item.GetLogContents()) {
          if (content.GetKey().equals("message")) {
            found.add(content.GetValue());
          }
        }
      }
    }
    return found;
  }

  private static String contents(QueriedLog log) {
    Map<String, String> fields = new TreeMap<>();
    for (LogContent content : log.GetLogItem().GetLogContents()) {
      fields.put(content.GetKey(), content.GetValue());
    }
    return fields.toString();
  }

  private static String field(QueriedLog log, String name) {
    for (LogContent content : log.GetLogItem().GetLogContents()) {
      if (content.GetKey().equals(name)) {
        return content.GetValue();
      }
    }
    throw new IllegalStateException("no field " + name + " in " + contents(log));
  }

  private static void consumers() {
    call("CreateConsumerGroup", () -> client.CreateConsumerGroup(P, L, new ConsumerGroup("by-hand", 60, true)));
    call("UpdateConsumerGroup", () -> client.UpdateConsumerGroup(P, L, "by-hand", true, 90));
    call("ListConsumerGroup", () -> same(client.ListConsumerGroup(P, L).GetConsumerGroups().get(0).getTimeout(), 90));
    call("HeartBeat", () -> {
      List<Integer> shards = client.HeartBeat(P, L, "by-hand", "me", new ArrayList<>()).getShards();
      Collections.sort(shards);
      same(shards, Arrays.asList(0, 1));
    });
    call("UpdateCheckPoint", () -> client.UpdateCheckPoint(
        P, L, "by-hand", "me", 1, client.GetCursor(P, L, 1, CursorMode.END).GetCursor()));
    call("GetCheckPoint", () -> same(checkpoint("by-hand", 1), client.GetCursor(P, L, 1, CursorMode.END).GetCursor()));
    call("DeleteConsumerGroup", () -> client.DeleteConsumerGroup(P, L, "by-hand"));
    if (port == 80) {
      call("ClientWorker", Calls::consume);
    }
    call("LogProducer", () -> produce(5000));
  }

  private static String checkpoint(String group, int shard) throws LogException {
    for (ConsumerGroupShardCheckPoint one : client.GetCheckPoint(P, L, group).getCheckPoints()) {
      if (one.getShard() == shard) {
        return one.getCheckPoint();
      }
    }
    return "";
  }

  /** Reads everything with the consumer library, as its own examples do, and checks a checkpoint. */
  private static void consume() throws Exception {
    LogHubConfig config = new LogHubConfig(
        "readers", "reader-1", ENDPOINT, P, L, id, secret, LogHubConfig.ConsumePosition.BEGIN_CURSOR);
    config.setHeartBeatIntervalMillis(1000);
    config.setFetchIntervalMillis(100);
    CountDownLatch remaining = new CountDownLatch(9);
    ClientWorker worker = new ClientWorker(() -> new Reader(remaining), config);
    Thread thread = new Thread(worker);
    thread.start();
    boolean isAll = remaining.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
    worker.shutdown();
    thread.join(PATIENCE_SECONDS * 1000L);
    same(isAll, true);
    same(checkpoint("readers", 1), client.GetCursor(P, L, 1, CursorMode.END).GetCursor());
  }

  private static final class Reader implements ILogHubProcessor {
    private final CountDownLatch remaining;

    Reader(CountDownLatch remaining) {
      this.remaining = remaining;
    }

    @Override
    public void initialize(int shard) {}

    @Override
    public String process(List<LogGroupData> groups, ILogHubCheckPointTracker tracker) {
      try {
        messages(groups).forEach(message -> remaining.countDown());
        tracker.saveCheckPoint(true);
        return null;
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }

    @Override
    public void shutdown(ILogHubCheckPointTracker tracker) {
      try {
        tracker.saveCheckPoint(true);
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }
  }

  private static void produce(int count) throws Exception {
    Producer producer = new LogProducer(new ProducerConfig());
    // An endpoint is a name, never an address or a port; the SDK connects to this address instead.
    ProjectConfig project = new ProjectConfig(P, ENDPOINT, id, secret);
    project.setProxyIp(host + ":" + port);
    producer.putProjectConfig(project);
    for (int number = 0; number < count; number++) {
      LogItem item = new LogItem(T + 3600);
      item.PushBack("number", String.valueOf(number));
      producer.send(P, L, "produced", "10.0.0.2", item);
    }
    producer.close();
    String sql = "__topic__: produced | SELECT count(DISTINCT number) AS n, count(*) AS m";
    GetLogsResponse got = client.GetLogs(P, L, T + 3600, T + 3601, "", sql);
    same(contents(got.GetLogs().get(0)), "{m=" + count + ", n=" + count + "}");
  }

  private static void endings() {
    call("SplitShard",
        () -> same(client.SplitShard(P, L, 1, "c0000000000000000000000000000000").GetShards().size(), 3));
    call("MergeShards", () -> client.MergeShards(P, L, 2));
    call("ClearLogStoreStorage", () -> client.ClearLogStoreStorage(P, L));
    call("listDashboard", () -> client.listDashboard(new ListDashboardRequest(P)));
    call("DeleteLogStore", () -> client.DeleteLogStore(P, L));
    call("DeleteProject", () -> client.DeleteProject(P));
  }
}
