package conformance;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** producer.start, producer.send, producer.queues, producer.view, producer.query, producer.stop. */
final class Producers {
    private final Map<String, DefaultMQProducer> running = new ConcurrentHashMap<>();

    Producers(Map<String, Agent.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.send", this::send);
        operations.put("producer.queues", request -> Values.ofQueues(named(request).fetchPublishMessageQueues(request.text("topic"))));
        operations.put("producer.view", request -> Values.of(named(request).viewMessage(request.text("topic"), request.text("msgId"))));
        operations.put("producer.query", request -> Values.ofMessages(named(request).queryMessage(request.text("topic"),
            request.text("key"), (int) request.number("max", 32), request.number("begin", 0),
            request.number("end", System.currentTimeMillis() + 60_000)).getMessageList()));
        operations.put("producer.stop", request -> {
            running.remove(request.text("name")).shutdown();
            return true;
        });
    }

    void close() {
        running.values().forEach(DefaultMQProducer::shutdown);
    }

    private DefaultMQProducer named(Request request) {
        DefaultMQProducer producer = running.get(request.text("name"));
        if (producer == null) {
            throw new IllegalArgumentException("no such producer: " + request.text("name"));
        }
        return producer;
    }

    private Object start(Request request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.text("group", "agent-producer"), Credentials.hook(request),
            request.flag("trace", false), null);
        producer.setNamesrvAddr(request.text("namesrv"));
        producer.setInstanceName(request.text("name"));
        producer.setSendMsgTimeout((int) request.number("timeoutMs", 10_000));
        producer.setRetryTimesWhenSendFailed((int) request.number("retries", 2));
        producer.setDefaultTopicQueueNums((int) request.number("defaultTopicQueueNums", 4));
        producer.setVipChannelEnabled(request.flag("vip", false));
        producer.setUseTLS(request.flag("tls", false));
        producer.setMaxMessageSize((int) request.number("maxMessageSize", 4 * 1024 * 1024));
        producer.setPollNameServerInterval((int) request.number("pollNameServerMs", 30_000));
        producer.setHeartbeatBrokerInterval((int) request.number("heartbeatMs", 30_000));
        if (request.has("compression")) {
            // Only newer clients have a choice.
            PushConsumers.setEnum(producer, "setCompressType", request.text("compression"));
        }
        producer.start();
        running.put(request.text("name"), producer);
        return true;
    }

    private Object send(Request request) throws Exception {
        DefaultMQProducer producer = named(request);
        List<Request> wanted = request.objects("messages");
        List<Message> messages = new ArrayList<>();
        for (Request one : wanted) {
            messages.add(Values.message(one, request.text("topic", "")));
        }
        switch (request.text("mode", "sync")) {
            case "sync":
                return sendSync(producer, messages, wanted);
            case "async":
                return sendAsync(producer, messages, wanted);
            case "oneway":
                for (int i = 0; i < messages.size(); i++) {
                    if (wanted.get(i).has("queue")) {
                        producer.sendOneway(messages.get(i), wanted.get(i).queue("queue"));
                    } else {
                        producer.sendOneway(messages.get(i));
                    }
                }
                return messages.size();
            case "batch":
                if (request.has("queue")) {
                    return Values.of(producer.send(messages, request.queue("queue")));
                }
                return Values.of(producer.send(messages));
            default:
                throw new IllegalArgumentException("mode: " + request.text("mode"));
        }
    }

    /** One result a message, an error among them where the send failed: the rest is sent all the same. */
    private static List<Object> sendSync(DefaultMQProducer producer, List<Message> messages, List<Request> wanted) {
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Request how = wanted.get(i);
            try {
                SendResult result;
                if (how.has("queue")) {
                    result = producer.send(messages.get(i), how.queue("queue"));
                } else if (how.has("shard")) {
                    result = producer.send(messages.get(i), new SelectMessageQueueByHash(), how.text("shard"));
                } else {
                    result = producer.send(messages.get(i));
                }
                results.add(Values.of(result));
            } catch (Throwable error) {
                results.add(Agent.describe(error));
            }
        }
        return results;
    }

    private static List<Object> sendAsync(DefaultMQProducer producer, List<Message> messages, List<Request> wanted) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int place = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[place] = Values.of(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    results[place] = Agent.describe(error);
                    open.countDown();
                }
            };
            if (wanted.get(i).has("queue")) {
                MessageQueue queue = wanted.get(i).queue("queue");
                producer.send(messages.get(i), queue, callback);
            } else {
                producer.send(messages.get(i), callback);
            }
        }
        if (!open.await(30, TimeUnit.SECONDS)) {
            Map<String, Object> late = new LinkedHashMap<>();
            late.put("error", "no callback within 30 s for " + open.getCount() + " messages");
            return List.of(late);
        }
        return java.util.Arrays.asList(results);
    }
}
