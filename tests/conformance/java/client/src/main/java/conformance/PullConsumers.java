package conformance;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** pull.*: the consumer that asks for every batch itself; lite.*: the one that polls. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Map<String, DefaultMQPullConsumer> pulling = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> polling = new ConcurrentHashMap<>();

    PullConsumers(Map<String, Agent.Operation> operations) {
        operations.put("pull.start", this::startPull);
        operations.put("pull.queues", request -> Values.ofQueues(pull(request).fetchSubscribeMessageQueues(request.text("topic"))));
        operations.put("pull.pull", this::pullOnce);
        operations.put("pull.all", this::pullAll);
        operations.put("pull.min", request -> pull(request).minOffset(request.queue("queue")));
        operations.put("pull.max", request -> pull(request).maxOffset(request.queue("queue")));
        operations.put("pull.earliest", request -> pull(request).earliestMsgStoreTime(request.queue("queue")));
        operations.put("pull.search", request -> pull(request).searchOffset(request.queue("queue"), request.number("timestamp", 0)));
        operations.put("pull.view", request -> Values.of(pull(request).viewMessage(request.text("topic"), request.text("msgId"))));
        operations.put("pull.query", request -> Values.ofMessages(pull(request).queryMessage(request.text("topic"),
            request.text("key"), (int) request.number("max", 32), request.number("begin", 0),
            request.number("end", System.currentTimeMillis() + 60_000)).getMessageList()));
        operations.put("pull.committed", request -> pull(request).fetchConsumeOffset(request.queue("queue"), request.flag("fromStore", true)));
        operations.put("pull.commit", request -> {
            MessageQueue queue = request.queue("queue");
            DefaultMQPullConsumer consumer = pull(request);
            consumer.updateConsumeOffset(queue, request.number("offset", 0));
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            return consumer.getDefaultMQPullConsumerImpl().getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
        });
        operations.put("pull.stop", request -> {
            pulling.remove(request.text("name")).shutdown();
            return true;
        });
        operations.put("lite.start", this::startLite);
        operations.put("lite.poll", this::poll);
        operations.put("lite.queues", request -> Values.ofQueues(lite(request).fetchMessageQueues(request.text("topic"))));
        operations.put("lite.seek", request -> {
            lite(request).seek(request.queue("queue"), request.number("offset", 0));
            return true;
        });
        operations.put("lite.offsetForTimestamp", request -> lite(request).offsetForTimestamp(request.queue("queue"), request.number("timestamp", 0)));
        operations.put("lite.commit", request -> {
            lite(request).commitSync();
            return true;
        });
        operations.put("lite.committed", request -> lite(request).committed(request.queue("queue")));
        operations.put("lite.stop", request -> {
            polling.remove(request.text("name")).shutdown();
            return true;
        });
    }

    void close() {
        pulling.values().forEach(DefaultMQPullConsumer::shutdown);
        polling.values().forEach(DefaultLitePullConsumer::shutdown);
    }

    private DefaultMQPullConsumer pull(Request request) {
        DefaultMQPullConsumer consumer = pulling.get(request.text("name"));
        if (consumer == null) {
            throw new IllegalArgumentException("no such pull consumer: " + request.text("name"));
        }
        return consumer;
    }

    private DefaultLitePullConsumer lite(Request request) {
        DefaultLitePullConsumer consumer = polling.get(request.text("name"));
        if (consumer == null) {
            throw new IllegalArgumentException("no such lite pull consumer: " + request.text("name"));
        }
        return consumer;
    }

    private Object startPull(Request request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.text("group"), Credentials.hook(request));
        consumer.setNamesrvAddr(request.text("namesrv"));
        consumer.setInstanceName(request.text("name"));
        consumer.setVipChannelEnabled(request.flag("vip", false));
        consumer.start();
        pulling.put(request.text("name"), consumer);
        return true;
    }

    private Object pullOnce(Request request) throws Exception {
        DefaultMQPullConsumer consumer = pull(request);
        long started = System.nanoTime();
        PullResult result;
        if (request.flag("block", false)) {
            result = consumer.pullBlockIfNotFound(request.queue("queue"), request.text("expression", "*"), request.number("offset", 0),
                (int) request.number("max", 32));
        } else {
            result = consumer.pull(request.queue("queue"), request.text("expression", "*"), request.number("offset", 0),
                (int) request.number("max", 32));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", String.valueOf(result.getPullStatus()));
        answer.put("nextBeginOffset", result.getNextBeginOffset());
        answer.put("minOffset", result.getMinOffset());
        answer.put("maxOffset", result.getMaxOffset());
        answer.put("tookMs", (System.nanoTime() - started) / 1_000_000);
        answer.put("messages", result.getMsgFoundList() == null ? List.of() : Values.ofMessages(result.getMsgFoundList()));
        return answer;
    }

    /** Every message of every queue of a topic, by pulling from the smallest offset to the largest. */
    private Object pullAll(Request request) throws Exception {
        DefaultMQPullConsumer consumer = pull(request);
        List<Object> found = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(request.text("topic"))) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() == null || result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException("stuck at " + offset + " of " + end + " in " + queue + ": " + result);
                }
                found.addAll(Values.ofMessages(result.getMsgFoundList()));
                offset = result.getNextBeginOffset();
            }
        }
        return found;
    }

    private Object startLite(Request request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.text("group"), Credentials.hook(request));
        consumer.setNamesrvAddr(request.text("namesrv"));
        consumer.setInstanceName(request.text("name"));
        consumer.setAutoCommit(request.flag("autoCommit", false));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + request.text("from", "FIRST_OFFSET")));
        boolean assigned = request.flag("assign", false);
        if (!assigned) {
            consumer.subscribe(request.text("topic"), request.text("expression", "*"));
        }
        consumer.start();
        if (assigned) {
            consumer.assign(consumer.fetchMessageQueues(request.text("topic")));
        }
        polling.put(request.text("name"), consumer);
        return true;
    }

    /** Polls until `count` messages are there or the time is up. */
    private Object poll(Request request) {
        DefaultLitePullConsumer consumer = lite(request);
        long deadline = System.currentTimeMillis() + request.number("timeoutMs", 30_000);
        List<Object> found = new ArrayList<>();
        while (found.size() < request.number("count", 1) && System.currentTimeMillis() < deadline) {
            List<MessageExt> messages = consumer.poll(200);
            found.addAll(Values.ofMessages(messages));
        }
        return found;
    }
}
