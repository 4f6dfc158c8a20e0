import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A job, as protocol.py has it, with the logs and streams of the file that its option {@code content} names. */
final class Job {
  /** Names and values of each log, by turns. */
  final String[][] logs;

  /** Topic and source of each stream. */
  final String[][] streams;

  /** Logs, and logs a second, of each thread; a rate of 0 is as fast as it goes. */
  final int count;

  final double rate;
  final int threads;
  final String address;
  final JSONObject options;

  Job(String line) throws Exception {
    JSONObject job = JSON.parseObject(line);
    options = job.getJSONObject("options");
    JSONObject content = JSON.parseObject(Files.readString(Path.of(options.getString("content"))));
    logs = content.getJSONArray("logs").stream().map(Job::pairs).toArray(String[][]::new);
    streams = content.getJSONArray("streams").stream().map(Job::texts).toArray(String[][]::new);
    threads = job.getIntValue("threads");
    count = job.getIntValue("count") / threads;
    rate = job.getDoubleValue("rate") / threads;
    address = job.getString("address");
  }

  private static String[] pairs(Object log) {
    List<String> texts = new ArrayList<>();
    ((Map<?, ?>) log).forEach((key, value) -> texts.addAll(List.of((String) key, (String) value)));
    return texts.toArray(String[]::new);
  }

  private static String[] texts(Object texts) {
    return ((JSONArray) texts).toArray(String[]::new);
  }
}
