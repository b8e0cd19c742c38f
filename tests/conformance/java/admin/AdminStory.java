import com.google.gson.Gson;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What DefaultMQAdminExt sees and does, told as a story: topics and groups come, change and go, messages are sent and consumed
 * and counted, a live consumer is sent back to the beginning. Prints one JSON object: what was asked -> what was answered.
 *
 * Arguments: name server, broker address, broker name, cluster name, a text that makes names unique.
 */
public final class AdminStory {
    private static final Map<String, Object> ANSWERS = new LinkedHashMap<>();
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static String namesrv;
    private static String broker;
    private static String brokerName;
    private static String cluster;
    private static String topic;
    private static String group;
    private static String producers;
    private static DefaultMQAdminExt admin;
    private static final AtomicInteger CONSUMED = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        namesrv = args[0];
        broker = args[1];
        brokerName = args[2];
        cluster = args[3];
        topic = "AdminTopic" + args[4];
        group = "admin_group" + args[4];
        producers = "admin_producers" + args[4];
        admin = new DefaultMQAdminExt(10_000);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin" + args[4]);
        admin.start();
        int code = 0;
        try {
            cluster();
            topics();
            groups();
            DefaultMQProducer producer = producer();
            newGroups();
            DefaultMQPushConsumer consumer = consumer(group, true);
            List<SendResult> sent = send(producer);
            counted(sent);
            connected(consumer);
            found(sent);
            traced(sent);
            reset(consumer);
            offline(consumer);
            configuration();
            keyValues();
            halfMessages();
            producer.shutdown();
            gone();
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        out.println(new Gson().toJson(ANSWERS));
        System.exit(code);
    }

    // The cluster.

    private static void cluster() throws Exception {
        answer("cluster", () -> admin.examineBrokerClusterInfo().getClusterAddrTable().get(cluster).contains(brokerName));
        answer("cluster address", () -> admin.examineBrokerClusterInfo().getBrokerAddrTable().get(brokerName)
            .getBrokerAddrs().get(0L).equals(broker));
        answer("runtime has version", () -> admin.fetchBrokerRuntimeStats(broker).getTable().containsKey("brokerVersionDesc"));
        HARuntimeInfo ha = admin.getBrokerHAStatus(broker);
        answer("ha", () -> ha.isMaster() + " " + ha.getHaConnectionInfo().size() + " " + ha.getInSyncSlaveNums());
    }

    // Topics and groups.

    private static void topics() throws Exception {
        TopicConfig config = new TopicConfig(topic, 3, 2, 6);
        admin.createAndUpdateTopicConfig(broker, config);
        answer("topic made", () -> describe(admin.examineTopicConfig(broker, topic)));
        config.setReadQueueNums(4);
        config.setWriteQueueNums(4);
        admin.createAndUpdateTopicConfig(broker, config);
        answer("topic changed", () -> describe(admin.examineTopicConfig(broker, topic)));
        awaitTrue("route", () -> admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums() == 4);
        answer("topic in cluster", () -> admin.fetchTopicsByCLuster(cluster).getTopicList().contains(topic));
        answer("topic in list", () -> admin.fetchAllTopicList().getTopicList().contains(topic));
        answer("topic in table", () -> admin.getAllTopicConfig(broker, 10_000).getTopicConfigTable().containsKey(topic));
        answer("user topics have no system topics", () -> {
            Set<String> names = admin.getUserTopicConfig(broker, false, 10_000).getTopicConfigTable().keySet();
            return names.contains(topic) && !names.contains("TBW102") && !names.contains("SCHEDULE_TOPIC_XXXX");
        });
        answer("clusters of topic", () -> admin.getTopicClusterList(topic));
        answer("bad topic", () -> {
            admin.createAndUpdateTopicConfig(broker, new TopicConfig("bad topic/..", 1, 1, 6));
            return "made";
        });
        answer("unknown topic", () -> admin.examineTopicConfig(broker, "NoSuchTopic"));
        answer("topics at once", () -> {
            TopicConfig one = new TopicConfig(topic + "-1", 1, 1, 6);
            TopicConfig two = new TopicConfig(topic + "-2", 2, 2, 4);
            admin.createAndUpdateTopicConfigList(broker, List.of(one, two));
            return describe(admin.examineTopicConfig(broker, topic + "-1")) + " "
                + describe(admin.examineTopicConfig(broker, topic + "-2"));
        });
    }

    private static void groups() throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        config.setRetryMaxTimes(3);
        config.setRetryQueueNums(2);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        answer("group made", () -> describe(admin.examineSubscriptionGroupConfig(broker, group)));
        config.setRetryMaxTimes(7);
        config.setConsumeBroadcastEnable(false);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        answer("group changed", () -> describe(admin.examineSubscriptionGroupConfig(broker, group)));
        answer("group in table", () -> admin.getAllSubscriptionGroup(broker, 10_000).getSubscriptionGroupTable().containsKey(group));
        answer("user groups have no system groups", () -> {
            Set<String> names = admin.getUserSubscriptionGroup(broker, 10_000).getSubscriptionGroupTable().keySet();
            return names.contains(group) && !names.contains("TOOLS_CONSUMER");
        });
        answer("groups at once", () -> {
            SubscriptionGroupConfig one = new SubscriptionGroupConfig();
            one.setGroupName(group + "-1");
            one.setRetryMaxTimes(1);
            admin.createAndUpdateSubscriptionGroupConfigList(broker, List.of(one));
            return describe(admin.examineSubscriptionGroupConfig(broker, group + "-1"));
        });
        answer("reading forbidden", () -> admin.updateAndGetGroupReadForbidden(broker, group + "-1", topic, false).getReadable());
        answer("reading allowed", () -> admin.updateAndGetGroupReadForbidden(broker, group + "-1", topic, true).getReadable());
    }

    // Messages.

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(producers);
        producer.setEnableTrace(true);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(producers);
        producer.start();
        return producer;
    }

    /** Asks for the members of new groups as soon as their consumers have started. */
    private static void newGroups() {
        answer("connections of new groups", () -> {
            StringBuilder found = new StringBuilder();
            for (int i = 0; i < 3; i++) {
                DefaultMQPushConsumer consumer = consumer(group + "-new" + i, false);
                try {
                    found.append(admin.examineConsumerConnectionInfo(group + "-new" + i).getConnectionSet().size());
                } finally {
                    consumer.shutdown();
                }
            }
            return found.toString();
        });
    }

    private static DefaultMQPushConsumer consumer(String group, boolean traced) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setEnableTrace(traced);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            CONSUMED.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static List<SendResult> send(DefaultMQProducer producer) throws Exception {
        List<SendResult> sent = new java.util.ArrayList<>();
        for (int i = 0; i < 12; i++) {
            Message message = new Message(topic, "Tag", "key-" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            sent.add(producer.send(message, new MessageQueue(topic, brokerName, i % 4)));
        }
        awaitTrue("all consumed", () -> CONSUMED.get() == 12);
        awaitTrue("all committed", () -> lag() == 0 && offsets("consumed").values().stream().allMatch(one -> one == 3));
        return sent;
    }

    private static void counted(List<SendResult> sent) throws Exception {
        answer("topic statistics", () -> {
            Map<Integer, String> table = new TreeMap<>();
            for (Map.Entry<MessageQueue, TopicOffset> one : admin.examineTopicStats(topic).getOffsetTable().entrySet()) {
                table.put(one.getKey().getQueueId(), one.getValue().getMinOffset() + "-" + one.getValue().getMaxOffset());
            }
            return table;
        });
        answer("consume statistics", () -> offsets("both"));
        answer("statistics of all groups", () -> admin.fetchConsumeStatsInBroker(broker, false, 10_000).getConsumeStatsList().stream()
            .filter(one -> one.containsKey(group)).flatMap(one -> one.get(group).stream())
            .flatMap(one -> one.getOffsetTable().entrySet().stream())
            .filter(one -> one.getKey().getTopic().equals(topic)).mapToLong(one -> one.getValue().getConsumerOffset()).sum());
        answer("who consumes", () -> admin.queryTopicConsumeByWho(topic).getGroupList());
        answer("what is consumed", () -> admin.queryTopicsByConsumer(group).getTopicList().contains(topic));
        answer("time spans", () -> admin.queryConsumeTimeSpan(topic, group).size());
        awaitTrue("a minute of sends", () -> stats("TOPIC_PUT_NUMS", topic) == 12);
        awaitTrue("a minute of pulls", () -> stats("GROUP_GET_NUMS", topic + "@" + group) == 12);
        answer("puts of the minute", () -> stats("TOPIC_PUT_NUMS", topic));
        answer("gets of the minute", () -> stats("GROUP_GET_NUMS", topic + "@" + group));
        answer("bytes of the minute", () -> stats("TOPIC_PUT_SIZE", topic) + " " + stats("GROUP_GET_SIZE", topic + "@" + group));
        answer("broker counts", () -> stats("BROKER_PUT_NUMS", cluster) >= 12 && stats("BROKER_GET_NUMS", cluster) >= 12);
        answer("unknown statistic", () -> stats("TOPIC_PUT_NUMS", "NoSuchTopic"));
    }

    private static void connected(DefaultMQPushConsumer consumer) throws Exception {
        ConsumerConnection connections = admin.examineConsumerConnectionInfo(group);
        answer("consumer connections", () -> connections.getConnectionSet().size() + " " + connections.getConsumeType() + " "
            + connections.getMessageModel() + " " + connections.getConsumeFromWhere() + " "
            + connections.getSubscriptionTable().get(topic).getSubString());
        Connection one = connections.getConnectionSet().iterator().next();
        answer("consumer client", () -> one.getClientId().endsWith("@" + group) + " " + one.getLanguage());
        answer("producer connections", () -> {
            Set<Connection> found = admin.examineProducerConnectionInfo(producers, topic).getConnectionSet();
            return found.size() + " " + found.iterator().next().getLanguage();
        });
        answer("all producers", () -> admin.getAllProducerInfo(broker).getData().get(producers).size());
        answer("unknown consumers", () -> admin.examineConsumerConnectionInfo("no_such_group", broker));
        answer("unknown producers", () -> admin.examineProducerConnectionInfo("no_such_group", topic));
        ConsumerRunningInfo info = admin.getConsumerRunningInfo(group, one.getClientId(), true);
        answer("running info", () -> info.getMqTable().keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count()
            + " " + info.getProperties().getProperty("PROP_CONSUME_TYPE") + " " + info.getSubscriptionSet().size());
        answer("stacks", () -> info.getJstack().contains("ConsumeMessageThread"));
        answer("running info of nobody", () -> admin.getConsumerRunningInfo(group, "nobody", false));
        answer("status at the client", () -> {
            Map<Integer, Long> table = new TreeMap<>();
            admin.getConsumeStatus(topic, group, one.getClientId()).get(one.getClientId())
                .forEach((queue, offset) -> table.put(queue.getQueueId(), offset));
            return table;
        });
    }

    private static void found(List<SendResult> sent) throws Exception {
        MessageExt first = admin.viewMessage(topic, sent.get(0).getOffsetMsgId());
        answer("by id", () -> new String(first.getBody(), StandardCharsets.UTF_8));
        answer("by unique key", () -> new String(admin.viewMessage(topic, sent.get(5).getMsgId()).getBody(), StandardCharsets.UTF_8));
        answer("by key", () -> admin.queryMessage(topic, "key-7", 8, 0, Long.MAX_VALUE).getMessageList().size());
        answer("track", () -> admin.messageTrackDetail(first).stream().filter(one -> one.getConsumerGroup().equals(group))
            .findFirst().get().getTrackType().name());
        answer("queue entries", () -> admin.queryConsumeQueue(broker, topic, 0, 0, 10, group).getQueueData().size());
        answer("consumed directly", () -> {
            String client = admin.examineConsumerConnectionInfo(group).getConnectionSet().iterator().next().getClientId();
            return admin.consumeMessageDirectly(group, client, topic, sent.get(0).getOffsetMsgId()).getConsumeResult().name();
        });
        answer("offset by time", () -> {
            MessageQueue queue = new MessageQueue(topic, brokerName, 1);
            long stored = admin.viewMessage(topic, sent.get(5).getOffsetMsgId()).getStoreTimestamp();
            return admin.searchOffset(queue, stored) + " " + admin.searchOffset(queue, stored + 3_600_000);
        });
    }

    /** Producer and consumer tell what they do in the trace topic, which nobody made; a message is found there by its id. */
    private static void traced(List<SendResult> sent) throws Exception {
        String id = sent.get(0).getMsgId();
        awaitTrue("traces", () -> traces(id).keySet().containsAll(List.of("Pub", "SubBefore", "SubAfter")));
        answer("traces", () -> traces(id).keySet());
        answer("trace of the send", () -> traces(id).get("Pub").isSuccess() + " "
            + traces(id).get("Pub").getTraceBeans().get(0).getOffsetMsgId().equals(sent.get(0).getOffsetMsgId()));
    }

    private static Map<String, TraceContext> traces(String id) throws Exception {
        Map<String, TraceContext> found = new TreeMap<>();
        for (MessageExt message : admin.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 64, 0, Long.MAX_VALUE).getMessageList()) {
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(new String(message.getBody(), StandardCharsets.UTF_8))) {
                if (context.getTraceBeans().stream().anyMatch(bean -> id.equals(bean.getMsgId()))) {
                    found.put(context.getTraceType().name(), context);
                }
            }
        }
        return found;
    }

    // Offsets.

    private static void reset(DefaultMQPushConsumer consumer) throws Exception {
        int before = CONSUMED.get();
        answer("live reset", () -> {
            Map<Integer, Long> table = new TreeMap<>();
            admin.resetOffsetByTimestamp(topic, group, 0, true).forEach((queue, offset) -> table.put(queue.getQueueId(), offset));
            return table;
        });
        awaitTrue("all consumed again", () -> CONSUMED.get() == before + 12);
        awaitTrue("all committed again", () -> lag() == 0);
        answer("consumed again", () -> CONSUMED.get() - before);
    }

    private static void offline(DefaultMQPushConsumer consumer) throws Exception {
        consumer.shutdown();
        awaitTrue("consumer is gone", () -> isGone());
        answer("statistics offline", () -> offsets("both"));
        admin.updateConsumeOffset(broker, group, new MessageQueue(topic, brokerName, 2), 1);
        answer("one offset set", () -> offsets("consumed").get(2));
        admin.resetOffsetByQueueId(broker, group, topic, 3, 2);
        answer("one queue reset", () -> offsets("consumed").get(3));
        answer("lag", AdminStory::lag);
        admin.cloneGroupOffset(group, group + "-1", topic, true);
        answer("cloned", () -> {
            Map<Integer, Long> table = new TreeMap<>();
            admin.examineConsumeStats(group + "-1", topic).getOffsetTable()
                .forEach((queue, one) -> table.put(queue.getQueueId(), one.getConsumerOffset()));
            return table;
        });
        answer("skipped", () -> {
            admin.resetOffsetByTimestamp(topic, group, -1, true);
            return lag();
        });
    }

    // Settings.

    private static void configuration() throws Exception {
        answer("broker configuration", () -> admin.getBrokerConfig(broker).getProperty("brokerName").equals(brokerName));
        answer("broker setting changed", () -> {
            Properties wish = new Properties();
            wish.setProperty("fileReservedTime", "49");
            admin.updateBrokerConfig(broker, wish);
            String now = admin.getBrokerConfig(broker).getProperty("fileReservedTime");
            wish.setProperty("fileReservedTime", "72");
            admin.updateBrokerConfig(broker, wish);
            return now;
        });
        answer("forbidden setting", () -> {
            Properties wish = new Properties();
            wish.setProperty("brokerConfigPath", "/tmp/elsewhere");
            admin.updateBrokerConfig(broker, wish);
            return "changed";
        });
        List<String> servers = Collections.singletonList(namesrv);
        answer("name server setting changed", () -> {
            Properties wish = new Properties();
            wish.setProperty("orderMessageEnable", "true");
            admin.updateNameServerConfig(wish, servers);
            String now = admin.getNameServerConfig(servers).get(namesrv).getProperty("orderMessageEnable");
            wish.setProperty("orderMessageEnable", "false");
            admin.updateNameServerConfig(wish, servers);
            return now;
        });
        answer("forbidden setting of the name server", () -> {
            Properties wish = new Properties();
            wish.setProperty("kvConfigPath", "/tmp/elsewhere");
            admin.updateNameServerConfig(wish, servers);
            return "changed";
        });
        answer("housekeeping", () -> admin.cleanExpiredConsumerQueueByAddr(broker) + " " + admin.cleanUnusedTopicByAddr(broker) + " "
            + admin.deleteExpiredCommitLogByAddr(broker));
    }

    private static void keyValues() throws Exception {
        admin.createAndUpdateKvConfig("space" + topic, "key", "value");
        answer("key", () -> admin.getKVConfig("space" + topic, "key"));
        answer("list", () -> admin.getKVListByNamespace("space" + topic).getTable());
        admin.deleteKvConfig("space" + topic, "key");
        answer("key deleted", () -> admin.getKVConfig("space" + topic, "key"));
        answer("write permission", () -> {
            boolean wiped = admin.wipeWritePermOfBroker(namesrv, brokerName) > 0;
            int perm = admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm();
            boolean added = admin.addWritePermOfBroker(namesrv, brokerName) > 0;
            return wiped + " " + perm + " " + added + " " + admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm();
        });
    }

    /** A transaction nobody decides: the check of its half message can be begun anew. */
    private static void halfMessages() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(producers + "-tx");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(producers + "-tx");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        SendResult half = producer.sendMessageInTransaction(new Message(topic, "half".getBytes(StandardCharsets.UTF_8)), null);
        answer("check of a half message resumed", () -> admin.resumeCheckHalfMessage(HALF_TOPIC, half.getOffsetMsgId()));
        producer.shutdown();
    }

    private static void gone() throws Exception {
        admin.deleteSubscriptionGroup(broker, group, true);
        answer("group deleted", () -> admin.getAllSubscriptionGroup(broker, 10_000).getSubscriptionGroupTable().containsKey(group));
        for (String name : List.of(topic, topic + "-1", topic + "-2")) {
            admin.deleteTopicInBroker(new HashSet<>(Collections.singletonList(broker)), name);
            admin.deleteTopicInNameServer(new HashSet<>(Collections.singletonList(namesrv)), name);
        }
        answer("topic deleted", () -> admin.examineTopicConfig(broker, topic));
        answer("route deleted", () -> admin.examineTopicRouteInfo(topic));
        answer("offsets deleted", () -> offsets("consumed"));
    }

    // Asking.

    private static void answer(String what, Callable<Object> question) {
        Object answer;
        try {
            answer = question.call();
        } catch (MQBrokerException error) {
            answer = "code " + error.getResponseCode();
        } catch (MQClientException error) {
            answer = "code " + error.getResponseCode();
        } catch (Exception error) {
            answer = error.getClass().getSimpleName();
        }
        ANSWERS.put(what, answer);
    }

    private static void awaitTrue(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + 75_000;
        while (true) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (MQBrokerException | MQClientException error) {
                // not yet
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not in time: " + what);
            }
            Thread.sleep(100);
        }
    }

    private static boolean isGone() throws Exception {
        try {
            admin.examineConsumerConnectionInfo(group, broker);
            return false;
        } catch (MQBrokerException error) {
            return error.getResponseCode() == 206;
        }
    }

    private static long lag() throws Exception {
        return admin.examineConsumeStats(group, topic).computeTotalDiff();
    }

    private static Map<Integer, Long> offsets(String which) throws Exception {
        Map<Integer, Long> table = new TreeMap<>();
        ConsumeStats stats = admin.examineConsumeStats(group, topic);
        for (Map.Entry<MessageQueue, OffsetWrapper> one : stats.getOffsetTable().entrySet()) {
            if (one.getKey().getTopic().equals(topic)) {
                OffsetWrapper offsets = one.getValue();
                table.put(one.getKey().getQueueId(),
                    which.equals("both") ? offsets.getBrokerOffset() * 1000 + offsets.getConsumerOffset() : offsets.getConsumerOffset());
            }
        }
        return table;
    }

    private static long stats(String name, String key) throws Exception {
        BrokerStatsData data = admin.viewBrokerStatsData(broker, name, key);
        return data.getStatsMinute().getSum();
    }

    private static String describe(TopicConfig config) {
        return config.getReadQueueNums() + "/" + config.getWriteQueueNums() + "/" + config.getPerm();
    }

    private static String describe(SubscriptionGroupConfig config) {
        return config.getRetryMaxTimes() + "/" + config.getRetryQueueNums() + "/" + config.isConsumeBroadcastEnable();
    }

    private AdminStory() {
    }
}
