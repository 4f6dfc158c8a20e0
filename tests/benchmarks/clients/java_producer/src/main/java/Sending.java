import com.aliyun.openservices.aliyun.log.producer.Callback;
import com.aliyun.openservices.aliyun.log.producer.LogProducer;
import com.aliyun.openservices.aliyun.log.producer.Producer;
import com.aliyun.openservices.aliyun.log.producer.ProducerConfig;
import com.aliyun.openservices.aliyun.log.producer.ProjectConfig;
import com.aliyun.openservices.aliyun.log.producer.Result;
import com.aliyun.openservices.log.common.LogItem;
import com.google.common.util.concurrent.ListenableFuture;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * The Java producer: {@code send} of one log at a time; every future is kept, and looked at within the timed part.
 *
 * <p>So is {@code close}, since the producer has no flush: else its last batches would wait for their linger. All
 * else is its default: lz4, batches of up to 512 KiB (with ours, 1 MiB, it is slower) or 4,096 logs, 2 s of linger,
 * 100 MiB of memory, an I/O thread a processor.
 */
final class Sending {
  /** Seconds that each call took, and until its outcome, by thread, if the job has a rate. */
  final double[][] calls;

  final double[][] waits;
  private final Job job;
  private final Producer producer;
  private final List<List<ListenableFuture<Result>>> futures = new ArrayList<>();

  Sending(Job job) throws Exception {
    this.job = job;
    producer = producer(job);
    calls = new double[job.threads][job.rate > 0 ? job.count : 0];
    waits = new double[job.threads][job.rate > 0 ? job.count : 0];
    for (int thread = 0; thread < job.threads; thread++) {
      futures.add(new ArrayList<>(job.count));
    }
  }

  private static Producer producer(Job job) throws Exception {
    ProducerConfig config = new ProducerConfig();
    if (job.options.containsKey("linger_ms")) {
      config.setLingerMs(job.options.getIntValue("linger_ms"));
    }
    if (job.options.containsKey("total_size_in_bytes")) {
      config.setTotalSizeInBytes(job.options.getIntValue("total_size_in_bytes"));
    }
    Producer producer = new LogProducer(config);
    // An endpoint is a name, never an address or a port; this is what it connects to in its place.
    ProjectConfig project = new ProjectConfig("p", "http://null.invalid", "a", "s");
    project.setProxyIp(job.address);
    producer.putProjectConfig(project);
    return producer;
  }

  /** All threads, then {@code close}; how many logs were delivered. */
  int run() throws Exception {
    List<Thread> senders = new ArrayList<>();
    for (int thread = 1; thread < job.threads; thread++) {
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

  private void sendAll(int thread) throws Exception {
    List<ListenableFuture<Result>> kept = futures.get(thread);
    if (job.rate > 0) {
      sendAtRate(kept, calls[thread], waits[thread]);
      return;
    }
    for (int number = 0; number < job.count; number++) {
      kept.add(send(number, null));
    }
  }

  /** In bursts of a millisecond; what a slow call delays is sent at once after it. */
  private void sendAtRate(List<ListenableFuture<Result>> kept, double[] took, double[] waited) throws Exception {
    int burst = Math.max(1, (int) (job.rate / 1000));
    long start = System.nanoTime();
    for (int number = 0; number < job.count; number++) {
      if (number % burst == 0) {
        LockSupport.parkNanos(start + (long) (number * 1e9 / job.rate) - System.nanoTime());
      }
      int place = number;
      long begun = System.nanoTime();
      kept.add(send(number, result -> waited[place] = (System.nanoTime() - begun) / 1e9));
      took[number] = (System.nanoTime() - begun) / 1e9;
    }
  }

  private ListenableFuture<Result> send(int number, Callback done) throws Exception {
    LogItem item = new LogItem();
    String[] log = job.logs[number % job.logs.length];
    for (int n = 0; n < log.length; n += 2) {
      item.PushBack(log[n], log[n + 1]);
    }
    String[] stream = job.streams[number % job.streams.length];
    return producer.send("p", "bench", stream[0], stream[1], item, done);
  }
}
