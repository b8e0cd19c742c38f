package conformance;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * tran.start, tran.send, tran.answer, tran.checks, tran.stop.
 *
 * A message says in "local" what its local transaction comes to (commit, rollback or unknown). What a producer answers when the
 * broker asks is set by tran.answer, for all messages or for one with a certain body; before that it is unknown.
 */
final class Transactions {
    private static final class Running implements TransactionListener {
        final TransactionMQProducer producer;
        final Map<String, LocalTransactionState> answers = new ConcurrentHashMap<>();
        final List<Map<String, Object>> checks = Collections.synchronizedList(new ArrayList<>());

        Running(TransactionMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> check = Values.of(message);
            check.put("transactionId", message.getTransactionId());
            checks.add(check);
            LocalTransactionState answer = answers.get(new String(message.getBody()));
            return answer != null ? answer : answers.getOrDefault("*", LocalTransactionState.UNKNOW);
        }
    }

    private final Map<String, Running> running = new ConcurrentHashMap<>();

    Transactions(Map<String, Agent.Operation> operations) {
        operations.put("tran.start", this::start);
        operations.put("tran.send", this::send);
        operations.put("tran.answer", request -> {
            named(request).answers.put(request.text("body", "*"), state(request.text("answer")));
            return true;
        });
        operations.put("tran.checks", request -> new ArrayList<>(named(request).checks));
        operations.put("tran.stop", request -> {
            running.remove(request.text("name")).producer.shutdown();
            return true;
        });
    }

    void close() {
        running.values().forEach(one -> one.producer.shutdown());
    }

    private Running named(Request request) {
        Running one = running.get(request.text("name"));
        if (one == null) {
            throw new IllegalArgumentException("no such transaction producer: " + request.text("name"));
        }
        return one;
    }

    private Object start(Request request) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(request.text("group"), Credentials.hook(request));
        producer.setNamesrvAddr(request.text("namesrv"));
        producer.setInstanceName(request.text("name"));
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval((int) request.number("heartbeatMs", 30_000));
        Running one = new Running(producer);
        producer.setTransactionListener(one);
        producer.start();
        running.put(request.text("name"), one);
        return true;
    }

    private Object send(Request request) throws Exception {
        TransactionMQProducer producer = named(request).producer;
        List<Object> results = new ArrayList<>();
        for (Request one : request.objects("messages")) {
            Message message = Values.message(one, request.text("topic"));
            TransactionSendResult result = producer.sendMessageInTransaction(message, state(one.text("local", "unknown")));
            Map<String, Object> value = new LinkedHashMap<>(Values.of(result));
            value.put("transactionId", result.getTransactionId());
            value.put("state", String.valueOf(result.getLocalTransactionState()));
            results.add(value);
        }
        return results;
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknown":
                return LocalTransactionState.UNKNOW;
            default:
                throw new IllegalArgumentException("no such decision: " + word);
        }
    }
}
