import java.util.HashMap;
import java.util.Map;
import org.apache.flume.Context;
import org.apache.flume.Event;
import org.apache.flume.Transaction;
import org.apache.flume.channel.file.FileChannel;
import org.apache.flume.conf.Configurables;
import org.apache.flume.event.EventBuilder;

/**
 * Puts events into Flume's file channel, and takes them again, on one thread: FOLDER EVENTS SIZE BYTES.
 *
 * Prints a line with the seconds of the puts and of the takes; other lines are the log. The same has been done before
 * with a quarter of the events, so that what is measured is compiled.
 */
public class FileChannelRates {
    public static void main(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        options.put("checkpointDir", arguments[0] + "/checkpoint");
        options.put("dataDirs", arguments[0] + "/data");
        options.put("capacity", "1000000");
        options.put("transactionCapacity", "10000");
        FileChannel channel = new FileChannel();
        channel.setName("c");
        Configurables.configure(channel, new Context(options));
        channel.start();
        int events = Integer.parseInt(arguments[1]);
        int size = Integer.parseInt(arguments[2]);
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        run(channel, events / 4, size, body);
        double[] seconds = run(channel, events, size, body);
        System.out.println("seconds " + seconds[0] + " " + seconds[1]);
        channel.stop();
        System.exit(0);
    }

    private static double[] run(FileChannel channel, int events, int size, byte[] body) {
        Event event = EventBuilder.withBody(body, Map.of("n", "1"));
        long start = System.nanoTime();
        for (int done = 0; done < events; done += size) {
            Transaction transaction = channel.getTransaction();
            transaction.begin();
            for (int number = 0; number < size; number++) {
                channel.put(event);
            }
            transaction.commit();
            transaction.close();
        }
        long middle = System.nanoTime();
        for (int done = 0; done < events; done += size) {
            Transaction transaction = channel.getTransaction();
            transaction.begin();
            for (int number = 0; number < size; number++) {
                if (channel.take() == null) {
                    throw new IllegalStateException("an event is missing");
                }
            }
            transaction.commit();
            transaction.close();
        }
        return new double[] {(middle - start) / 1e9, (System.nanoTime() - middle) / 1e9};
    }
}
