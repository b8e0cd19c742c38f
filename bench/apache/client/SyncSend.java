// One thread that sends and waits for the answer, with Apache's Java client: the latency that bench/client.py compares ours with.
// Arguments: name server, topic, bytes of a body, seconds to warm up, seconds to measure. Prints one line of JSON.

import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class SyncSend {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        byte[] body = new byte[Integer.parseInt(arguments[2])];
        Arrays.fill(body, (byte) 'x');
        DefaultMQProducer producer = new DefaultMQProducer("bench_sync_producer");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        send(producer, topic, body, Double.parseDouble(arguments[3]));
        long[] latencies = send(producer, topic, body, Double.parseDouble(arguments[4]));
        producer.shutdown();
        Arrays.sort(latencies);
        System.out.printf("{\"messages\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}%n",
            latencies.length, latencies[latencies.length / 2] / 1e3, latencies[latencies.length * 99 / 100] / 1e3);
        System.exit(0);
    }

    private static long[] send(DefaultMQProducer producer, String topic, byte[] body, double seconds) throws Exception {
        long[] latencies = new long[1 << 22];
        int count = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        for (long began = System.nanoTime(); began < end && count < latencies.length; began = System.nanoTime()) {
            producer.send(new Message(topic, body));
            latencies[count++] = System.nanoTime() - began;
        }
        return Arrays.copyOf(latencies, count);
    }
}
