import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** A client of the benchmark: a job a line on stdin, an answer a line on stdout; see protocol.py. */
public final class Client {
  private static final double[] QUANTILES = {0.5, 0.9, 0.99, 0.999, 1.0};

  private Client() {}

  private static JSONObject answer(Sending sending) throws Exception {
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long start = System.nanoTime();
    long cpu = system.getProcessCpuTime();
    int delivered = sending.run();
    JSONObject answer = new JSONObject();
    answer.put("seconds", (System.nanoTime() - start) / 1e9);
    answer.put("cpu_seconds", (system.getProcessCpuTime() - cpu) / 1e9);
    answer.put("peak_bytes", peakBytes());
    answer.put("delivered", delivered);
    answer.put("send_seconds", quantiles(sending.calls));
    answer.put("ack_seconds", quantiles(sending.waits));
    return answer;
  }

  private static double[] quantiles(double[][] parts) {
    double[] ranked = Arrays.stream(parts).flatMapToDouble(Arrays::stream).sorted().toArray();
    int length = ranked.length;
    if (length == 0) {
      return ranked;
    }
    return Arrays.stream(QUANTILES).map(q -> ranked[Math.min(length - 1, (int) (q * length))]).toArray();
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

  private static void end(Thread thread, Throwable error) {
    error.printStackTrace();
    System.exit(1);
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // stdout belongs to the answers
    Thread.setDefaultUncaughtExceptionHandler(Client::end); // of whatever thread: nobody waits for the rest
    answers.println("[\"send\"]");
    BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
      answers.println(answer(new Sending(new Job(line))));
    }
  }
}
