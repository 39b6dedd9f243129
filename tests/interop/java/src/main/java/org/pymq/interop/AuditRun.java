package org.pymq.interop;

import com.alibaba.fastjson2.JSONObject;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Apache RocketMQ's clients fill a broker's store with every kind of message they know, POP included, in half a minute.
 *
 * <pre>
 *   AuditRun namesrv popTopic popGroup
 * </pre>
 *
 * Topics and groups are there already, and the POP group's mode is set. What was acknowledged and what was handled comes
 * out as one JSON object a line: {"type": "sent", "topic", "queueId", "queueOffset", "msgId"}, {"type": "handled", …, "group"};
 * the last one is {"type": "done"}. Message ids are those of the record: host and physical offset.
 */
public final class AuditRun {
    private static final int WAIT_MS = 45_000;
    private static final int SETTLE_MS = 3_000;
    private static final int FAST_LEVEL = 1;
    private static final int SLOW_LEVEL = 18;
    private static final int HOUR_S = 3_600;
    private static final int POP_INVISIBLE_MS = 10_000;

    private final String namesrv;
    private final PrintStream protocol;
    private final List<Runnable> closers = new ArrayList<>();
    private final Map<String, AtomicInteger> handled = new ConcurrentHashMap<>();
    private final Set<String> failed = ConcurrentHashMap.newKeySet();

    private AuditRun(String namesrv, PrintStream protocol) {
        this.namesrv = namesrv;
        this.protocol = protocol;
    }

    public static void main(String[] args) {
        PrintStream protocol = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        AuditRun run = new AuditRun(args[0], protocol);
        try {
            run.consumers(args[1], args[2]);
            run.produce(args[1]);
            run.transactions();
            run.await(args[2]);
            run.closers.parallelStream().forEach(Runnable::run); // each takes its time
            run.post("done", new JSONObject());
            Runtime.getRuntime().halt(0);
        } catch (Exception problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients' threads would go on
        }
    }

    private synchronized void post(String type, JSONObject line) {
        protocol.println(line.fluentPut("type", type));
    }

    private <T extends ClientConfig> T configured(T client, String name) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(name);
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(3_000);
        client.setPersistConsumerOffsetInterval(500);
        return client;
    }

    // ---- producers ------------------------------------------------------------------------------------------------

    private void sent(String topic, SendResult result) {
        if (result.getOffsetMsgId() == null) { // of a transaction: where its half lies is not told
            return;
        }
        String[] ids = result.getOffsetMsgId().split(",");
        for (int i = 0; i < ids.length; i++) {
            post("sent", new JSONObject().fluentPut("topic", topic)
                .fluentPut("queueId", result.getMessageQueue().getQueueId())
                .fluentPut("queueOffset", result.getQueueOffset() + i).fluentPut("msgId", ids[i]));
        }
    }

    private static byte[] body(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void produce(String popTopic) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer("audit-producers"), "producer");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        closers.add(producer::shutdown);
        for (int i = 0; i < 2; i++) {
            for (int level : new int[] {FAST_LEVEL, SLOW_LEVEL}) {
                Message message = new Message("Delayed", "later", "d-" + i, body("level " + level));
                message.setDelayTimeLevel(level);
                sent("Delayed", producer.send(message));
            }
            for (int seconds : new int[] {2, HOUR_S}) {
                Message message = new Message("Timed", "timed", "t-" + i, body("timer " + seconds));
                message.setDelayTimeSec(seconds);
                sent("Timed", producer.send(message));
            }
        }
        Message recalled = new Message("Timed", "timed", "recalled", body("not to be seen"));
        recalled.setDelayTimeSec(5);
        SendResult taken = producer.send(recalled);
        sent("Timed", taken);
        producer.recallMessage("Timed", taken.getRecallHandle());
        for (int i = 0; i < 80; i++) {
            Message message = new Message("Plain", i % 3 == 0 ? null : List.of("red", "green", "größer").get(i % 3),
                i % 2 == 0 ? null : "order-" + i + " customer-" + i % 7, i, body("plain " + i), true);
            message.putUserProperty("colour", "blue");
            sent("Plain", producer.send(message));
        }
        sent("Plain", producer.send(new Message("Plain", "large", "large", body("again and again ".repeat(500)))));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            batch.add(new Message("Batched", "batch", "b-" + i, body("item " + i)));
        }
        sent("Batched", producer.send(batch));
        for (int i = 0; i < 24; i++) {
            Message message = new Message("Ordered", "step", "o-" + i, body("step " + i));
            MessageAccessor.putProperty(message, "__SHARDINGKEY", "account-" + i % 6);
            sent("Ordered", producer.send(message, (queues, one, key) -> queues.get((Integer) key % queues.size()), i % 6));
        }
        for (int i = 0; i < 20; i++) {
            Message message = new Message("Prices", "price", "p-" + i, body("price " + i));
            message.putUserProperty("price", String.valueOf(i % 10));
            sent("Prices", producer.send(message));
        }
        for (int i = 0; i < 6; i++) {
            sent("Failing", producer.send(new Message("Failing", "failing", "f-" + i, body("failing " + i))));
        }
        for (int i = 0; i < 30; i++) {
            sent(popTopic, producer.send(new Message(popTopic, "pop", "pop-" + i, body("pop " + i))));
        }
    }

    /** Each transaction is decided once, however late the broker hears of it: a second commit would be a second message. */
    private void transactions() throws Exception {
        Set<String> open = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = configured(new TransactionMQProducer("audit-transactions"), "transactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                if (argument == LocalTransactionState.UNKNOW && "asked".equals(message.getTags())) {
                    open.add(message.getKeys());
                }
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return open.remove(message.getKeys()) ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        closers.add(producer::shutdown);
        for (int i = 0; i < 4; i++) {
            for (LocalTransactionState state : LocalTransactionState.values()) {
                Message message = new Message("Transacted", "asked", "x-" + i + state, body("transaction " + state));
                sent("Transacted", producer.sendMessageInTransaction(message, state));
            }
        }
        sent("Transacted", producer.sendMessageInTransaction(
            new Message("Transacted", "undecided", "x-undecided", body("undecided")), LocalTransactionState.UNKNOW));
    }

    // ---- consumers ------------------------------------------------------------------------------------------------

    private DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(group), group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        closers.add(consumer::shutdown);
        return consumer;
    }

    private void handled(String group, List<MessageExt> messages) {
        handled.computeIfAbsent(group, name -> new AtomicInteger()).addAndGet(messages.size());
        for (MessageExt message : messages) {
            // A message that comes again bears its first topic's name; the record lies in the group's retry topic.
            post("handled", new JSONObject().fluentPut("group", group).fluentPut("topic", message.getTopic())
                .fluentPut("queueId", message.getQueueId()).fluentPut("queueOffset", message.getQueueOffset())
                .fluentPut("msgId", ((MessageClientExt) message).getOffsetMsgId())
                .fluentPut("reconsumeTimes", message.getReconsumeTimes()));
        }
    }

    private interface Decision extends Function<MessageExt, Integer> {
    }

    /** Handles messages; the decision's level for the next attempt, or null when all is well. */
    private MessageListenerConcurrently listener(String group, Decision decision) {
        return (List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            handled(group, messages);
            Integer level = decision.apply(messages.get(0));
            if (level == null) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(level);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        };
    }

    private void consumers(String popTopic, String popGroup) throws Exception {
        DefaultMQPushConsumer readers = consumer("readers");
        for (String topic : List.of("Plain", "Batched", "Delayed", "Timed", "Transacted")) {
            readers.subscribe(topic, "*");
        }
        readers.registerMessageListener(listener("readers", message -> null));
        readers.start();
        DefaultMQPushConsumer sql = consumer("sql");
        sql.subscribe("Prices", MessageSelector.bySql("price > 5"));
        sql.registerMessageListener(listener("sql", message -> null));
        sql.start();
        DefaultMQPushConsumer tagged = consumer("tagged");
        tagged.subscribe("Plain", "red || green");
        tagged.registerMessageListener(listener("tagged", message -> null));
        tagged.start();
        DefaultMQPushConsumer ordered = consumer("in-order");
        ordered.subscribe("Ordered", "*");
        ordered.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            handled("in-order", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        ordered.start();
        DefaultMQPushConsumer failing = consumer("failing");
        failing.subscribe("Failing", "*");
        failing.registerMessageListener(listener("failing", message -> {
            switch (message.getKeys()) {
                case "f-0":
                    return message.getReconsumeTimes() < 2 ? FAST_LEVEL : null;
                case "f-1":
                    return -1;
                case "f-2":
                    return SLOW_LEVEL;
                default:
                    return null;
            }
        }));
        failing.start();
        DefaultMQPushConsumer pop = consumer(popGroup);
        pop.setClientRebalance(false);
        pop.setPopInvisibleTime(POP_INVISIBLE_MS);
        pop.subscribe(popTopic, "*");
        // The level is one of POP's own: ten seconds, then half a minute.
        pop.registerMessageListener(listener(popGroup,
            message -> "pop-3".equals(message.getKeys()) && failed.add(message.getKeys()) ? 1 : null));
        pop.start();
    }

    private int count(String group) {
        return handled.getOrDefault(group, new AtomicInteger()).get();
    }

    /** Until everything that is due soon has come: 2 delayed, 2 timed, 4 committed at once, 4 when asked. */
    private void await(String popGroup) throws Exception {
        BooleanSupplier all = () -> count("readers") >= 81 + 12 + 2 + 2 + 8 && count("sql") >= 8 && count("in-order") >= 24
            && count("failing") >= 6 + 2 && count(popGroup) >= 31;
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!all.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        if (!all.getAsBoolean()) {
            throw new IllegalStateException("not everything came: " + handled);
        }
        Thread.sleep(SETTLE_MS);
    }
}
