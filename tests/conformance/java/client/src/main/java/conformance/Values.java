package conformance;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's values as plain maps, ready to become JSON, and messages made from requests. */
final class Values {
    private static final int SHORT_BODY = 256;

    static Message message(Request request, String defaultTopic) {
        Message message = new Message(request.text("topic", defaultTopic), body(request));
        if (request.has("tags")) {
            message.setTags(request.text("tags"));
        }
        if (request.has("keys")) {
            message.setKeys(request.text("keys"));
        }
        if (request.has("flag")) {
            message.setFlag((int) request.number("flag", 0));
        }
        if (request.has("delayLevel")) {
            message.setDelayTimeLevel((int) request.number("delayLevel", 0));
        }
        if (request.has("waitStoreMsgOk")) {
            message.setWaitStoreMsgOK(request.flag("waitStoreMsgOk", true));
        }
        request.textMap("properties").forEach(message::putUserProperty);
        return message;
    }

    /** Either the given text, or `size` bytes: of one letter (which compresses well) or random from a seed (which does not). */
    private static byte[] body(Request request) {
        if (request.has("body")) {
            return request.text("body").getBytes(StandardCharsets.UTF_8);
        }
        byte[] body = new byte[(int) request.number("size", 0)];
        if (request.has("seed")) {
            new Random(request.number("seed", 0)).nextBytes(body);
        } else {
            java.util.Arrays.fill(body, (byte) 'x');
        }
        return body;
    }

    static Map<String, Object> of(SendResult result) {
        Map<String, Object> value = new LinkedHashMap<>();
        if (result == null) {
            return value;
        }
        value.put("status", String.valueOf(result.getSendStatus()));
        value.put("msgId", result.getMsgId());
        value.put("offsetMsgId", result.getOffsetMsgId());
        value.put("topic", result.getMessageQueue().getTopic());
        value.put("broker", result.getMessageQueue().getBrokerName());
        value.put("queueId", result.getMessageQueue().getQueueId());
        value.put("queueOffset", result.getQueueOffset());
        value.put("regionId", result.getRegionId());
        return value;
    }

    static Map<String, Object> of(MessageExt message) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("topic", message.getTopic());
        value.put("queueId", message.getQueueId());
        value.put("queueOffset", message.getQueueOffset());
        value.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt) {
            value.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        value.put("tags", message.getTags());
        value.put("keys", message.getKeys());
        value.put("flag", message.getFlag());
        value.put("sysFlag", message.getSysFlag());
        value.put("reconsumeTimes", message.getReconsumeTimes());
        value.put("bornTimestamp", message.getBornTimestamp());
        value.put("storeTimestamp", message.getStoreTimestamp());
        value.put("bornHost", message.getBornHostString());
        value.put("commitLogOffset", message.getCommitLogOffset());
        value.put("storeSize", message.getStoreSize());
        value.put("properties", new TreeMap<>(message.getProperties()));
        byte[] body = message.getBody();
        value.put("bodyLength", body.length);
        if (body.length <= SHORT_BODY) {
            value.put("body", new String(body, StandardCharsets.UTF_8));
        }
        value.put("sha256", sha256(body));
        return value;
    }

    static Map<String, Object> of(MessageQueue queue) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("topic", queue.getTopic());
        value.put("broker", queue.getBrokerName());
        value.put("queueId", queue.getQueueId());
        return value;
    }

    static List<Object> ofMessages(Collection<? extends MessageExt> messages) {
        List<Object> values = new ArrayList<>();
        for (MessageExt message : messages) {
            values.add(of(message));
        }
        return values;
    }

    static List<Object> ofQueues(Collection<MessageQueue> queues) {
        List<MessageQueue> sorted = new ArrayList<>(queues);
        java.util.Collections.sort(sorted);
        List<Object> values = new ArrayList<>();
        for (MessageQueue queue : sorted) {
            values.add(of(queue));
        }
        return values;
    }

    static String sha256(byte[] bytes) {
        try {
            return String.format("%064x", new BigInteger(1, MessageDigest.getInstance("SHA-256").digest(bytes)));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private Values() {
    }
}
