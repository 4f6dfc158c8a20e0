import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.aliyun.openservices.aliyun.log.producer.Callback;
import com.aliyun.openservices.aliyun.log.producer.LogProducer;
import com.aliyun.openservices.aliyun.log.producer.Producer;
import com.aliyun.openservices.aliyun.log.producer.ProducerConfig;
import com.aliyun.openservices.aliyun.log.producer.ProjectConfig;
import com.aliyun.openservices.aliyun.log.producer.Result;
import com.aliyun.openservices.log.common.LogItem;
import com.google.common.util.concurrent.ListenableFuture;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * The Java producer, as a client of the benchmark: a job a line on stdin, an answer a line on stdout; see protocol.py.
 *
 * <p>{@code send} of one log at a time; every future is kept and looked at within the timed part. So is {@code close},
 * since the producer has no flush: else its last batches would wait for their linger. lz4 is its default; batches are of
 * up to 1 MiB, as ours (its default is half of that); all else is its default: 4,096 logs a batch, 2 s of linger, 100 MiB
 * of memory, an I/O thread a processor.
 *
 * <p>The logs and streams come in a file that the job's {@code options} name, so that they are the same as those of the
 * other clients.
 */
public final class Client {
  private static final double[] QUANTILES = {0.5, 0.9, 0.99, 0.999, 1.0};

  private final Producer producer;
  private final String[][] logs;
  private final String[][] streams;
  private final int count;
  private final int threads;
  private final double rate;
  private final List<ListenableFuture<Result>>[] futures;
  private final double[][] calls;
  private final double[][] waits;

  @SuppressWarnings("unchecked")
  private Client(JSONObject job) throws Exception {
    JSONObject options = job.getJSONObject("options");
    JSONObject content = JSON.parseObject(Files.readString(Path.of(options.getString("content"))));
    logs = content.getJSONArray("logs").stream().map(Client::pairs).toArray(String[][]::new);
    streams = content.getJSONArray("streams").stream().map(Client::texts).toArray(String[][]::new);
    threads = job.getIntValue("threads");
    count = job.getIntValue("count") / threads;
    rate = job.getDoubleValue("rate") / threads;
    producer = producer(job.getString("address"), options);
    futures = new List[threads];
    calls = new double[threads][rate > 0 ? count : 0];
    waits = new double[threads][rate > 0 ? count : 0];
  }

  private static String[] pairs(Object log) {
    List<String> texts = new ArrayList<>();
    ((Map<?, ?>) log).forEach((key, value) -> texts.addAll(List.of((String) key, (String) value)));
    return texts.toArray(String[]::new);
  }

  private static String[] texts(Object texts) {
    return ((JSONArray) texts).toArray(String[]::new);
  }

  private static Producer producer(String address, JSONObject options) {
    ProducerConfig config = new ProducerConfig();
    config.setBatchSizeThresholdInBytes(1024 * 1024);
    if (options.containsKey("linger_ms")) {
      config.setLingerMs(options.getIntValue("linger_ms"));
    }
    if (options.containsKey("total_size_in_bytes")) {
      config.setTotalSizeInBytes(options.getIntValue("total_size_in_bytes"));
    }
    Producer producer = new LogProducer(config);
    // An endpoint is a name, never an address or a port; this is what it connects to in its place.
    ProjectConfig project = new ProjectConfig("p", "http://null.invalid", "a", "s");
    project.setProxyIp(address);
    producer.putProjectConfig(project);
    return producer;
  }

  private ListenableFuture<Result> send(int number, Callback done) throws Exception {
    LogItem item = new LogItem();
    String[] log = logs[number % logs.length];
    for (int n = 0; n < log.length; n += 2) {
      item.PushBack(log[n], log[n + 1]);
    }
    String[] stream = streams[number % streams.length];
    return producer.send("p", "bench", stream[0], stream[1], item, done);
  }

  private void sendAll(int thread) throws Exception {
    List<ListenableFuture<Result>> kept = new ArrayList<>(count);
    futures[thread] = kept;
    if (rate > 0) {
      sendAtRate(kept, calls[thread], waits[thread]);
      return;
    }
    for (int number = 0; number < count; number++) {
      kept.add(send(number, null));
    }
  }

  /** In bursts of a millisecond; what a slow call delays is sent at once after it. */
  private void sendAtRate(List<ListenableFuture<Result>> kept, double[] took, double[] waited) throws Exception {
    int burst = Math.max(1, (int) (rate / 1000));
    long start = System.nanoTime();
    for (int number = 0; number < count; number++) {
      if (number % burst == 0) {
        LockSupport.parkNanos(start + (long) (number * 1e9 / rate) - System.nanoTime());
      }
      int place = number;
      long begun = System.nanoTime();
      kept.add(send(number, result -> waited[place] = (System.nanoTime() - begun) / 1e9));
      took[number] = (System.nanoTime() - begun) / 1e9;
    }
  }

  private int run() throws Exception {
    List<Thread> senders = new ArrayList<>();
    for (int thread = 1; thread < threads; thread++) {
      int place = thread;
      senders.add(new Thread(() -> unchecked(place)));
    }
    senders.forEach(Thread::start);
    sendAll(0);
    for (Thread sender : senders) {
      sender.join();
    }
    producer.close();
    int delivered = 0;
    for (List<ListenableFuture<Result>> kept : futures) {
      for (ListenableFuture<Result> future : kept) {
        delivered += future.get().isSuccessful() ? 1 : 0;
      }
    }
    return delivered;
  }

  private void unchecked(int thread) {
    try {
      sendAll(thread);
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  private static double[] quantiles(double[][] parts) {
    double[] ranked = Arrays.stream(parts).flatMapToDouble(Arrays::stream).sorted().toArray();
    int length = ranked.length;
    return length == 0 ? ranked : Arrays.stream(QUANTILES).map(q -> ranked[Math.min(length - 1, (int) (q * length))]).toArray();
  }

  private static long peakBytes() throws Exception {
    Path status = Path.of("/proc/self/status");
    if (Files.exists(status)) {
      for (String line : Files.readAllLines(status)) {
        if (line.startsWith("VmHWM:")) {
          return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
        }
      }
    }
    return Runtime.getRuntime().totalMemory(); // of the heap alone, where the system does not tell
  }

  private JSONObject answer() throws Exception {
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long start = System.nanoTime();
    long cpu = system.getProcessCpuTime();
    int delivered = run();
    JSONObject answer = new JSONObject(true);
    answer.put("seconds", (System.nanoTime() - start) / 1e9);
    answer.put("cpu_seconds", (system.getProcessCpuTime() - cpu) / 1e9);
    answer.put("peak_bytes", peakBytes());
    answer.put("delivered", delivered);
    answer.put("send_seconds", quantiles(calls));
    answer.put("ack_seconds", quantiles(waits));
    return answer;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // stdout belongs to the answers
    answers.println("[\"send\"]");
    BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
      answers.println(new Client(JSON.parseObject(line)).answer());
    }
    System.exit(0);
  }
}
