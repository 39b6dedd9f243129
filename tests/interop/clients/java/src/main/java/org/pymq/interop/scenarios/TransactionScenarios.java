package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Part 5: a message that is there only when its sender says so. Checks begin after a second here, six at most. */
final class TransactionScenarios {
    private static final int SETTLE_MS = 2_000;

    private TransactionScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("transaction-commit", world -> decided(world, LocalTransactionState.COMMIT_MESSAGE));
        all.put("transaction-rollback", world -> decided(world, LocalTransactionState.ROLLBACK_MESSAGE));
        all.put("transaction-check-commits", world -> checked(world, LocalTransactionState.COMMIT_MESSAGE));
        all.put("transaction-check-rolls-back", world -> checked(world, LocalTransactionState.ROLLBACK_MESSAGE));
        all.put("transaction-second-check-commits", TransactionScenarios::secondCheck);
        all.put("transaction-executor-throws", TransactionScenarios::executorThrows);
        all.put("transaction-producer-returns", TransactionScenarios::producerReturns);
        all.put("transaction-check-by-another-member", TransactionScenarios::anotherMember);
        all.put("transaction-gives-up", TransactionScenarios::givesUp);
        all.put("transaction-half-is-invisible", TransactionScenarios::invisible);
        all.put("transaction-immunity-time", TransactionScenarios::immunity);
        all.put("transaction-refused", TransactionScenarios::refused);
    }

    /** A producer of transactions that remembers what it was asked. */
    static final class Decider implements TransactionListener {
        final AtomicInteger checks = new AtomicInteger();
        volatile MessageExt checked;
        volatile long checkedMs;
        private final IntFunction<LocalTransactionState> onCheck;
        private final LocalTransactionState onExecute;

        Decider(LocalTransactionState onExecute, IntFunction<LocalTransactionState> onCheck) {
            this.onExecute = onExecute;
            this.onCheck = onCheck;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            if (onExecute == null) {
                throw new IllegalStateException("as a database may");
            }
            return onExecute;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checkedMs = System.currentTimeMillis();
            checked = message;
            return onCheck.apply(checks.incrementAndGet());
        }
    }

    static TransactionMQProducer producer(World world, String group, Decider decider) throws Exception {
        TransactionMQProducer producer = world.configured(new TransactionMQProducer(group));
        producer.setTransactionListener(decider);
        producer.start();
        world.closeLater(producer::shutdown);
        return producer;
    }

    private static JSONObject decided(World world, LocalTransactionState state) throws Exception {
        String topic = world.topic(4);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(state, count -> LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        TransactionSendResult sent = producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        int expected = state == LocalTransactionState.COMMIT_MESSAGE ? 1 : 0;
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(expected, World.WAIT_MS, 2 * SETTLE_MS);
        return Facts.of("status", sent.getSendStatus().name(), "state", sent.getLocalTransactionState().name(),
            "given", Facts.each(given, one -> one.key), "checks", decider.checks.get(),
            "sameUniqueKey", Facts.each(given, one -> one.message.getMsgId().equals(sent.getMsgId())),
            "queue", Facts.each(given, one -> one.message.getQueueId() == sent.getMessageQueue().getQueueId()),
            "properties", Facts.each(given, one -> Facts.properties(one.message)));
    }

    /** The sender does not know at first; asked later, it does. */
    private static JSONObject checked(World world, LocalTransactionState state) throws Exception {
        String topic = world.topic(4);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> state);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        TransactionSendResult sent = producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        boolean asked = World.within(World.WAIT_MS, () -> decider.checks.get() > 0);
        int expected = state == LocalTransactionState.COMMIT_MESSAGE ? 1 : 0;
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(expected, World.WAIT_MS, 2 * SETTLE_MS);
        return Facts.of("asked", asked, "given", Facts.each(given, one -> one.key), "checks", decider.checks.get(),
            "checkedTopic", topic.equals(decider.checked.getTopic()),
            "checkedId", sent.getTransactionId().equals(decider.checked.getTransactionId()),
            "checkedBody", new String(decider.checked.getBody()),
            "properties", Facts.each(given, one -> Facts.properties(one.message)));
    }

    /** Still unknown at the first check: asked again. */
    private static JSONObject secondCheck(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> count == 1
            ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE);
        producer(world, world.name("producers"), decider)
            .sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.each(given, one -> one.key), "checks", decider.checks.get(),
            "checkTimes", decider.checked.getProperty("TRANSACTION_CHECK_TIMES"));
    }

    /** An exception in the local transaction means that nobody knows. */
    private static JSONObject executorThrows(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(null, count -> LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        TransactionSendResult sent = producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("state", sent.getLocalTransactionState().name(), "given", Facts.each(given, one -> one.key),
            "checks", decider.checks.get());
    }

    /** The sender is gone when it should be asked; one of its group that comes later is asked instead. */
    private static JSONObject producerReturns(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.name("producers");
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider before = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        TransactionMQProducer leaving = producer(world, group, before);
        leaving.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        leaving.shutdown();
        Thread.sleep(SETTLE_MS);
        int given = deliveries.count();
        int asked = before.checks.get();
        Decider after = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        // A producer is known to a broker once it has sent something there.
        producer(world, group, after).send(World.message(world.topic(1), "tag", "hello"));
        List<Deliveries.Delivery> later = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("givenWhileAway", given, "askedWhileAway", asked, "given", Facts.each(later, one -> one.key),
            "checks", after.checks.get() > 0);
    }

    /** Any live member of the producer group may be asked. */
    private static JSONObject anotherMember(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.name("producers");
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider staying = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        producer(world, group, staying).send(World.message(world.topic(1), "tag", "hello"));
        Decider sending = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        TransactionMQProducer leaving = producer(world, group, sending);
        leaving.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        leaving.shutdown();
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.each(given, one -> one.key), "checks", staying.checks.get() > 0);
    }

    /** Never decided: after the maximum of checks it is put aside where an operator finds it. */
    private static JSONObject givesUp(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        TransactionSendResult sent = producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        World.within(World.WAIT_MS, () -> aside(world, sent) != null);
        MessageExt found = aside(world, sent);
        Thread.sleep(2 * SETTLE_MS);
        return Facts.of("checks", decider.checks.get(), "given", deliveries.count(), "aside", found != null,
            "body", found == null ? null : new String(found.getBody()));
    }

    private static MessageExt aside(World world, TransactionSendResult sent) throws Exception {
        return world.raw.read("TRANS_CHECK_MAX_TIME_TOPIC", 0).stream()
            .filter(one -> sent.getMsgId().equals(one.getProperty("UNIQ_KEY"))).findFirst().orElse(null);
    }

    /** Between the two phases nobody can read it, whatever he asks for. */
    private static JSONObject invisible(World world) throws Exception {
        String topic = world.topic(1);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null);
        long before = producer.maxOffset(world.queue(topic, 0));
        int readBefore = world.raw.read(topic, 0).size();
        List<MessageExt> after = world.raw.read(topic, 0, 1, World.WAIT_MS);
        return Facts.of("offsetBefore", before, "readBefore", readBefore, "offsetAfter",
            producer.maxOffset(world.queue(topic, 0)), "readAfter", after.size(),
            "prepared", Facts.each(after, one -> one.getPreparedTransactionOffset() > 0),
            "sysFlag", Facts.each(after, MessageExt::getSysFlag));
    }

    /** CHECK_IMMUNITY_TIME_IN_SECONDS: this message is not asked about for so long. */
    private static JSONObject immunity(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        Message message = World.message(topic, "tag", "m");
        MessageAccessor.putProperty(message, "CHECK_IMMUNITY_TIME_IN_SECONDS", "3");
        long sentMs = System.currentTimeMillis();
        producer.sendMessageInTransaction(message, null);
        List<Deliveries.Delivery> given = deliveries.await(1, World.WAIT_MS);
        return Facts.of("given", Facts.each(given, one -> one.key),
            "tooSoon", decider.checkedMs < sentMs + 2_900, "checks", decider.checks.get());
    }

    /** rejectTransactionMessage=true, its broker's setting. */
    private static JSONObject refused(World world) throws Exception {
        String topic = world.topic(1);
        Decider decider = new Decider(LocalTransactionState.COMMIT_MESSAGE, count -> LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = producer(world, world.name("producers"), decider);
        String outcome = Facts.outcome(() -> producer.sendMessageInTransaction(World.message(topic, "tag", "m"), null));
        String plain = Facts.outcome(() -> producer.send(World.message(topic, "tag", "m")));
        return Facts.of("transaction", outcome, "plain", plain);
    }
}
