package conformance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** push.start, push.messages (waits for a number of them), push.owned, push.persist, push.stop. */
final class PushConsumers {
    /** A running consumer and everything it was given so far, in the order of arrival. */
    private static final class Running {
        final DefaultMQPushConsumer consumer;
        final List<Object> received = new ArrayList<>();
        final Map<String, Integer> failuresLeft = new HashMap<>();
        final List<String> entangled = new ArrayList<>();
        final Map<String, Thread> busyQueues = new ConcurrentHashMap<>();

        Running(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }

        /** Whether all of these count as consumed; a body listed under "fail" is refused so many times first. */
        synchronized boolean take(List<MessageExt> messages) {
            boolean ok = true;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8);
                int left = failuresLeft.getOrDefault(body, 0);
                Map<String, Object> value = Values.of(message);
                value.put("receivedAt", System.currentTimeMillis());
                value.put("refused", left > 0);
                received.add(value);
                if (left > 0) {
                    failuresLeft.put(body, left - 1);
                    ok = false;
                }
            }
            notifyAll();
            return ok;
        }
    }

    private final Map<String, Running> running = new ConcurrentHashMap<>();

    PushConsumers(Map<String, Agent.Operation> operations) {
        operations.put("push.start", this::start);
        operations.put("push.messages", this::messages);
        operations.put("push.owned", request -> Values.ofQueues(named(request).consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet()));
        operations.put("push.clientId", request -> named(request).consumer.buildMQClientId());
        operations.put("push.persist", request -> {
            named(request).consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return true;
        });
        operations.put("push.stop", this::stop);
    }

    void close() {
        running.values().forEach(one -> one.consumer.shutdown());
    }

    private Running named(Request request) {
        Running found = running.get(request.text("name"));
        if (found == null) {
            throw new IllegalArgumentException("no such push consumer: " + request.text("name"));
        }
        return found;
    }

    private Object start(Request request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.text("group"), Credentials.hook(request),
            new AllocateMessageQueueAveragely(), request.flag("trace", false), null);
        Running one = new Running(consumer);
        consumer.setNamesrvAddr(request.text("namesrv"));
        consumer.setInstanceName(request.text("instance", request.text("name")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + request.text("from", "FIRST_OFFSET")));
        if (request.has("timestamp")) {
            consumer.setConsumeTimestamp(request.text("timestamp"));
        }
        consumer.setConsumeThreadMin((int) request.number("threads", 4));
        consumer.setConsumeThreadMax((int) request.number("threads", 4));
        consumer.setConsumeMessageBatchMaxSize((int) request.number("batch", 1));
        consumer.setPullBatchSize((int) request.number("pullBatch", 32));
        consumer.setMaxReconsumeTimes((int) request.number("maxReconsumeTimes", -1));
        consumer.setPollNameServerInterval((int) request.number("pollNameServerMs", 30_000));
        consumer.setPersistConsumerOffsetInterval((int) request.number("persistMs", 5_000));
        consumer.setVipChannelEnabled(request.flag("vip", false));
        consumer.setUseTLS(request.flag("tls", false));
        // The enumeration lives in different packages in 4.9 and 5.x.
        setEnum(consumer, "setMessageModel", request.text("model", "CLUSTERING"));
        if (request.has("strategy")) {
            Class<?> strategy = Class.forName("org.apache.rocketmq.client.consumer.rebalance." + request.text("strategy"));
            consumer.setAllocateMessageQueueStrategy((AllocateMessageQueueStrategy) strategy.getConstructor().newInstance());
        }
        for (Map.Entry<String, String> entry : request.textMap("topics").entrySet()) {
            if (request.flag("sql", false)) {
                consumer.subscribe(entry.getKey(), MessageSelector.bySql(entry.getValue()));
            } else {
                consumer.subscribe(entry.getKey(), entry.getValue());
            }
        }
        for (Request failure : request.objects("fail")) {
            one.failuresLeft.put(failure.text("body"), (int) failure.number("times", 1));
        }
        long pauseMs = request.number("pauseMs", 0);
        int delayLevel = (int) request.number("delayLevel", 1);
        if (request.flag("orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String queue = context.getMessageQueue().toString();
                if (one.busyQueues.putIfAbsent(queue, Thread.currentThread()) != null) {
                    one.entangled.add(queue);
                }
                try {
                    pause(pauseMs);
                    context.setSuspendCurrentQueueTimeMillis(200);
                    return one.take(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                } finally {
                    one.busyQueues.remove(queue);
                }
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                pause(pauseMs);
                context.setDelayLevelWhenNextConsume(delayLevel);
                return one.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        running.put(request.text("name"), one);
        return consumer.buildMQClientId();
    }

    /** Everything received from `since` on, as soon as `count` messages (other than refused ones) are there or the time is up. */
    private Object messages(Request request) throws Exception {
        Running one = named(request);
        long count = request.number("count", 0);
        long deadline = System.currentTimeMillis() + request.number("timeoutMs", 30_000);
        @SuppressWarnings("unchecked")
        Predicate<Object> accepted = value -> !(Boolean) ((Map<String, Object>) value).get("refused");
        synchronized (one) {
            while (one.received.stream().filter(accepted).count() < count) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    break;
                }
                one.wait(left);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            int since = (int) Math.min(request.number("since", 0), one.received.size());
            answer.put("messages", new ArrayList<>(one.received.subList(since, one.received.size())));
            answer.put("entangled", new ArrayList<>(one.entangled));
            return answer;
        }
    }

    /** Gives back everything the consumer ever received, what came while it stopped included. */
    private Object stop(Request request) {
        Running one = named(request);
        running.remove(request.text("name"));
        one.consumer.shutdown();
        synchronized (one) {
            return new ArrayList<>(one.received);
        }
    }

    private static void pause(long ms) {
        if (ms > 0) {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setEnum(Object target, String setter, String name) throws Exception {
        for (java.lang.reflect.Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1 && method.getParameterTypes()[0].isEnum()) {
                method.invoke(target, Enum.valueOf((Class<Enum>) method.getParameterTypes()[0], name));
                return;
            }
        }
        throw new NoSuchMethodException(setter);
    }
}
