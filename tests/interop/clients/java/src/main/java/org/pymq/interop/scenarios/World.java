package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a scenario works with: servers to reach, names nobody else has, clients that are closed after it. */
final class World {
    static final int WAIT_MS = 30_000;
    private static final int SEND_TIMEOUT_MS = 10_000;
    private static final int POLL_NAME_SERVER_MS = 1_000;
    private static final int HEARTBEAT_MS = 3_000;
    private static final int PERSIST_OFFSET_MS = 500;
    private static final int PULL_DELAY_AFTER_REFUSAL_MS = 500;
    private static final int PERMISSION_READ_WRITE = 6;
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, Raw> RAWS = new ConcurrentHashMap<>();

    private static final Set<String> READERS = ConcurrentHashMap.newKeySet();

    final String namesrv;
    final String broker;
    final String brokerName;
    final Raw raw;
    private final String scenario;
    private final BiConsumer<World, Integer> onPause;
    private final List<Runnable> closers = new ArrayList<>();
    private volatile CompletableFuture<Integer> resumed = new CompletableFuture<>();
    private volatile int id;

    World(JSONObject request, int id, BiConsumer<World, Integer> onPause) {
        this.namesrv = request.getString("namesrv");
        this.broker = request.getString("broker");
        this.brokerName = request.getString("brokerName");
        this.scenario = request.getString("name");
        this.id = id;
        this.onPause = onPause;
        this.raw = RAWS.computeIfAbsent(broker, Raw::new);
    }

    /** What must be there before a scenario begins. */
    void prepare() throws Exception {
        if (READERS.add(broker)) {
            updateGroup(Raw.READER);
        }
    }

    /** A name that begins with the scenario's. */
    String name(String what) {
        return scenario + "-" + what + "-" + ProcessHandle.current().pid() + "-" + NUMBERS.incrementAndGet();
    }

    /** A new topic, known to the name server. */
    String topic(int queues) throws Exception {
        String topic = name("topic");
        updateTopic(topic, queues, queues);
        awaitRoute(topic);
        return topic;
    }

    void updateTopic(String topic, int readQueues, int writeQueues) throws Exception {
        var answer = raw.ask(Raw.UPDATE_AND_CREATE_TOPIC, "topic", topic, "defaultTopic", "TBW102",
            "readQueueNums", readQueues, "writeQueueNums", writeQueues, "perm", PERMISSION_READ_WRITE,
            "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false);
        demand(answer.getCode() == Raw.SUCCESS, "create topic: " + answer.getRemark());
    }

    private void awaitRoute(String topic) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (raw.ask(namesrv, Raw.GET_ROUTEINFO_BY_TOPIC, Map.of("topic", topic), null).getCode() != Raw.SUCCESS) {
            demand(System.currentTimeMillis() < deadline, "no route of " + topic);
            Thread.sleep(50);
        }
    }

    /** A new group with these fields of its configuration; the rest as the broker would make them. */
    String group(Object... fields) throws Exception {
        String group = name("group");
        updateGroup(group, fields);
        return group;
    }

    void updateGroup(String group, Object... fields) throws Exception {
        JSONObject config = Facts.of("groupName", group, "consumeEnable", true, "consumeFromMinEnable", true,
            "consumeBroadcastEnable", true, "consumeMessageOrderly", false, "retryQueueNums", 1, "retryMaxTimes", 16,
            "brokerId", 0, "whichBrokerWhenConsumeSlowly", 1, "notifyConsumerIdsChangedEnable", true);
        config.putAll(Facts.of(fields));
        var answer = raw.askWithBody(Raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config);
        demand(answer.getCode() == Raw.SUCCESS, "create group: " + answer.getRemark());
    }

    <T extends ClientConfig> T configure(T client) {
        client.setNamesrvAddr(namesrv);
        // Clients of one instance name share connections and heartbeats; each of ours is a client of its own.
        client.setInstanceName(name("client"));
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(POLL_NAME_SERVER_MS);
        client.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        client.setPersistConsumerOffsetInterval(PERSIST_OFFSET_MS);
        return client;
    }

    /** The producer that scenarios share; it does not try again, so that what is refused is seen. */
    DefaultMQProducer producer() {
        return PRODUCERS.computeIfAbsent(namesrv, address -> started(configured(new DefaultMQProducer("producers"))));
    }

    /** A producer of one's own, not started. */
    DefaultMQProducer ownProducer(String group) {
        DefaultMQProducer producer = configured(new DefaultMQProducer(group));
        closeLater(producer::shutdown);
        return producer;
    }

    <T extends DefaultMQProducer> T configured(T producer) {
        configure(producer);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        return producer;
    }

    private static DefaultMQProducer started(DefaultMQProducer producer) {
        try {
            producer.start();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
        return producer;
    }

    static Message message(String topic, String tag, String key) {
        return new Message(topic, tag, key, ("body of " + key).getBytes(StandardCharsets.UTF_8));
    }

    /** Sends *count* messages with keys prefix-0, prefix-1, … to one queue, in order. */
    List<SendResult> send(String topic, String prefix, int count, int queueId) throws Exception {
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer().send(message(topic, "tag", prefix + "-" + i), queue(topic, queueId)));
        }
        return sent;
    }

    MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, brokerName, queueId);
    }

    /** A push consumer that begins at the first message, neither subscribed nor started. */
    DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullTimeDelayMillsWhenException(PULL_DELAY_AFTER_REFUSAL_MS);
        closeLater(consumer::shutdown);
        return consumer;
    }

    /** Every member of the group is to be given everything. */
    static void broadcasting(DefaultMQPushConsumer consumer) {
        // The two client versions have the type in different packages.
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
    }

    /** The simplest consumer: takes everything for consumed. */
    Deliveries consume(String group, String topic) throws Exception {
        return consume(consumer(group), topic, "*");
    }

    Deliveries consume(DefaultMQPushConsumer consumer, String topic, String expression) throws Exception {
        Deliveries deliveries = new Deliveries();
        consumer.subscribe(topic, expression);
        start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        return deliveries;
    }

    /** Starts a subscribed consumer whose deliveries are recorded before its listener answers. */
    void start(DefaultMQPushConsumer consumer, Deliveries deliveries, MessageListenerConcurrently listener)
        throws Exception {
        String name = consumer.getInstanceName();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            deliveries.add(messages, name);
            return listener.consumeMessage(messages, context);
        });
        consumer.start();
    }

    /** How many queues of a topic a consumer has now. */
    static int queuesOf(DefaultMQPushConsumer consumer, String topic) {
        var table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        return (int) table.keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** Whether *condition* came to hold in time. */
    static boolean within(long timeoutMs, Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    static void demand(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    /** Has the broker restarted by whoever plays this scenario; returns when it is up again. */
    void restartBroker() throws Exception {
        onPause.accept(this, id);
        id = resumed.get();
        resumed = new CompletableFuture<>();
    }

    void resume(int request) {
        resumed.complete(request);
    }

    /** The request that the facts answer: the last one that made the scenario go on. */
    int answerTo() {
        return id;
    }

    synchronized void closeLater(Runnable closer) {
        closers.add(closer);
    }

    /** Shuts clients down without anybody waiting for it. */
    synchronized void closeSoon() {
        for (Runnable closer : closers) {
            Thread thread = new Thread(closer, "close " + scenario);
            thread.setDaemon(true);
            thread.start();
        }
    }
}
