package conformance;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * timer.start, timer.send, timer.recall, timer.stop.
 *
 * Timer messages exist since 5.0, recalling them since 5.3: what the older client does not have is called by its name.
 */
final class Timers {
    private static final List<String> WAYS = List.of("setDelayTimeSec", "setDelayTimeMs", "setDeliverTimeMs");

    private final Map<String, DefaultMQProducer> running = new ConcurrentHashMap<>();

    Timers(Map<String, Agent.Operation> operations) {
        operations.put("timer.start", this::start);
        operations.put("timer.send", this::send);
        operations.put("timer.recall", request -> DefaultMQProducer.class
            .getMethod("recallMessage", String.class, String.class)
            .invoke(running.get(request.text("name")), request.text("topic"), request.text("handle")));
        operations.put("timer.stop", request -> {
            running.remove(request.text("name")).shutdown();
            return true;
        });
    }

    void close() {
        running.values().forEach(DefaultMQProducer::shutdown);
    }

    private Object start(Request request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.text("group", "timer-producer"));
        producer.setNamesrvAddr(request.text("namesrv"));
        producer.setInstanceName(request.text("name"));
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        running.put(request.text("name"), producer);
        return true;
    }

    /** Each message has one of the fields setDelayTimeSec, setDelayTimeMs, setDeliverTimeMs, and its result says when it was sent. */
    private Object send(Request request) {
        DefaultMQProducer producer = running.get(request.text("name"));
        List<Object> results = new ArrayList<>();
        for (Request one : request.objects("messages")) {
            try {
                Message message = Values.message(one, request.text("topic"));
                for (String way : WAYS) {
                    if (one.has(way)) {
                        Message.class.getMethod(way, long.class).invoke(message, one.number(way, 0));
                    }
                }
                long before = System.currentTimeMillis();
                SendResult result = one.has("queue") ? producer.send(message, one.queue("queue")) : producer.send(message);
                Map<String, Object> value = Values.of(result);
                value.put("sentAfter", before);
                value.put("sentBefore", System.currentTimeMillis());
                value.put("recallHandle", SendResult.class.getMethod("getRecallHandle").invoke(result));
                results.add(value);
            } catch (Throwable error) {
                results.add(Agent.describe(error));
            }
        }
        return results;
    }
}
