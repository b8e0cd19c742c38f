package conformance;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** requester.start, requester.ask, requester.stop; replier.start, replier.results (waits for a number of them), replier.stop. */
final class RequestReply {
    /** Answers every message with "re:" and its body, and keeps what became of each answer. */
    private static final class Replier {
        final DefaultMQPushConsumer consumer;
        final DefaultMQProducer producer;
        final List<Object> results = new ArrayList<>();

        Replier(DefaultMQPushConsumer consumer, DefaultMQProducer producer) {
            this.consumer = consumer;
            this.producer = producer;
        }

        void answer(MessageExt asked) {
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("asked", Values.of(asked));
            try {
                byte[] body = ("re:" + new String(asked.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                result.put("sent", Values.of(producer.send(MessageUtil.createReplyMessage(asked, body), 10_000)));
            } catch (Throwable error) {
                result.put("failed", Agent.describe(error));
            }
            synchronized (results) {
                results.add(result);
                results.notifyAll();
            }
        }

        void close() {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    private final Map<String, DefaultMQProducer> requesters = new ConcurrentHashMap<>();
    private final Map<String, Replier> repliers = new ConcurrentHashMap<>();

    RequestReply(Map<String, Agent.Operation> operations) {
        operations.put("requester.start", this::startRequester);
        operations.put("requester.ask", this::ask);
        operations.put("requester.stop", request -> {
            requesters.remove(request.text("name")).shutdown();
            return true;
        });
        operations.put("replier.start", this::startReplier);
        operations.put("replier.results", this::results);
        operations.put("replier.stop", request -> {
            repliers.remove(request.text("name")).close();
            return true;
        });
    }

    void close() {
        repliers.values().forEach(Replier::close);
        requesters.values().forEach(DefaultMQProducer::shutdown);
    }

    private Object startRequester(Request request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.text("group"), Credentials.hook(request));
        producer.setNamesrvAddr(request.text("namesrv"));
        producer.setInstanceName(request.text("name"));
        producer.start();
        requesters.put(request.text("name"), producer);
        return producer.buildMQClientId();
    }

    /** One answer a message, or the error of the request. */
    private Object ask(Request request) throws Exception {
        DefaultMQProducer producer = requesters.get(request.text("name"));
        long timeoutMs = request.number("timeoutMs", 10_000);
        List<Request> wanted = request.objects("messages");
        Object[] answers = new Object[wanted.size()];
        CountDownLatch open = new CountDownLatch(wanted.size());
        for (int i = 0; i < answers.length; i++) {
            int place = i;
            Message message = Values.message(wanted.get(i), request.text("topic"));
            if (!request.flag("async", false)) {
                answers[place] = askAndWait(producer, message, timeoutMs);
                continue;
            }
            producer.request(message, new RequestCallback() {
                @Override
                public void onSuccess(Message answer) {
                    answers[place] = plain(answer);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    answers[place] = Agent.describe(error);
                    open.countDown();
                }
            }, timeoutMs);
        }
        if (request.flag("async", false) && !open.await(timeoutMs + 5_000, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("no callback for " + open.getCount() + " requests");
        }
        return java.util.Arrays.asList(answers);
    }

    private static Object askAndWait(DefaultMQProducer producer, Message message, long timeoutMs) {
        try {
            return plain(producer.request(message, timeoutMs));
        } catch (Throwable error) {
            return Agent.describe(error);
        }
    }

    private static Map<String, Object> plain(Message answer) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("topic", answer.getTopic());
        value.put("body", new String(answer.getBody(), StandardCharsets.UTF_8));
        value.put("bodyLength", answer.getBody().length);
        value.put("properties", answer.getProperties());
        return value;
    }

    private Object startReplier(Request request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.text("group") + "-answers", Credentials.hook(request));
        producer.setNamesrvAddr(request.text("namesrv"));
        producer.setInstanceName(request.text("name") + "-answers");
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.text("group"), Credentials.hook(request),
            new AllocateMessageQueueAveragely());
        Replier replier = new Replier(consumer, producer);
        consumer.setNamesrvAddr(request.text("namesrv"));
        consumer.setInstanceName(request.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(replier::answer);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.put(request.text("name"), replier);
        return true;
    }

    private Object results(Request request) throws Exception {
        List<Object> results = repliers.get(request.text("name")).results;
        long deadline = System.currentTimeMillis() + request.number("timeoutMs", 30_000);
        synchronized (results) {
            while (results.size() < request.number("count", 0)) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    break;
                }
                results.wait(left);
            }
            return new ArrayList<>(results);
        }
    }
}
