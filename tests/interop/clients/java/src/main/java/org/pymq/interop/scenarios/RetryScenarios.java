package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Part 2: what becomes of a message that could not be consumed. */
final class RetryScenarios {
    /** The broker's levels 3 and above, as these tests set them; level 2 is two of them. */
    private static final int LEVEL_MS = 1_000;
    private static final int SETTLE_MS = 2_000;

    private RetryScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("retry-later", world -> retried(world, (messages, context) -> ConsumeConcurrentlyStatus.RECONSUME_LATER));
        all.put("retry-null", world -> retried(world, (messages, context) -> null));
        all.put("retry-exception", world -> retried(world, (messages, context) -> {
            throw new IllegalStateException("as a listener may");
        }));
        all.put("retry-delay-level-in-context", RetryScenarios::levelInContext);
        all.put("retry-negative-level-to-dead-letters", RetryScenarios::negativeLevel);
        all.put("retry-maximum-of-the-consumer", RetryScenarios::maximumOfTheConsumer);
        all.put("retry-default-maximum-is-16", RetryScenarios::defaultMaximum);
        all.put("retry-dead-letters-are-consumed", RetryScenarios::deadLettersConsumed);
        all.put("retry-part-of-a-batch", RetryScenarios::partOfABatch);
        all.put("retry-keeps-the-tag-filter", RetryScenarios::tagFilter);
        all.put("retry-reaches-another-member", RetryScenarios::anotherMember);
        all.put("retry-of-a-consumer-that-left", RetryScenarios::consumerLeft);
        all.put("retry-topic-is-subscribed-by-its-group-only", RetryScenarios::ownGroupOnly);
    }

    /**
     * Fails twice in one of three ways, then is consumed: what the listener sees each time.
     *
     * A retry is due a second after the failure; when it was stored is the broker's doing, when a client that does not
     * know its new retry topic yet gets round to pulling it is not.
     */
    private static JSONObject retried(World world, MessageListenerConcurrently failing) throws Exception {
        String topic = world.topic(1);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> deliveries.count(messages.get(0)) <= 2
            ? failing.consumeMessage(messages, context)
            : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        SendResult sent = world.send(topic, "m", 1, 0).get(0);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(3, World.WAIT_MS, SETTLE_MS);
        return Facts.of(
            "reconsumeTimes", Facts.each(given, one -> one.reconsumeTimes),
            "topic", Facts.each(given, one -> one.message.getTopic().equals(topic)),
            "sameUniqueKey", Facts.each(given, one -> one.message.getMsgId().equals(sent.getMsgId())),
            "retryTopic", Facts.each(given, one -> topic.equals(one.message.getProperty("RETRY_TOPIC"))),
            "originIsTheFirst", Facts.each(given,
                one -> sent.getOffsetMsgId().equals(one.message.getProperty("ORIGIN_MESSAGE_ID"))),
            "tag", Facts.each(given, one -> one.message.getTags()),
            "second", Facts.punctuality(given.get(1).message.getStoreTimestamp(), given.get(0).atMs + LEVEL_MS),
            "third", Facts.punctuality(given.get(2).message.getStoreTimestamp(), given.get(1).atMs + LEVEL_MS),
            "properties", Facts.properties(given.get(2).message));
    }

    /** The listener's own level, 2: two seconds here. */
    private static JSONObject levelInContext(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            context.setDelayLevelWhenNextConsume(2);
            return deliveries.count() == 1 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.send(topic, "m", 1, 0);
        List<Deliveries.Delivery> given = deliveries.await(2, World.WAIT_MS);
        return Facts.of("second", Facts.punctuality(given.get(1).message.getStoreTimestamp(), given.get(0).atMs + 2 * LEVEL_MS),
            "reconsumeTimes", Facts.each(given, one -> one.reconsumeTimes));
    }

    private static JSONObject deadLetter(World world, String group, String topic, SendResult sent) throws Exception {
        List<MessageExt> dead = world.raw.read("%DLQ%" + group, 0, 1, World.WAIT_MS);
        MessageExt letter = dead.get(0);
        JSONObject config = world.raw.topicConfig("%DLQ%" + group);
        return Facts.of("count", dead.size(), "reconsumeTimes", letter.getReconsumeTimes(),
            "body", new String(letter.getBody()),
            "origin", sent.getOffsetMsgId().equals(letter.getProperty("ORIGIN_MESSAGE_ID")),
            "retryTopic", topic.equals(letter.getProperty("RETRY_TOPIC")),
            "deadOriginTopic", topic.equals(letter.getProperty("DLQ_ORIGIN_TOPIC")),
            "deadOriginId", sent.getMsgId().equals(letter.getProperty("DLQ_ORIGIN_MESSAGE_ID")),
            "permission", config.getIntValue("perm"), "queues", config.getIntValue("readQueueNums"),
            "properties", Facts.properties(letter));
    }

    /** Level -1: no more attempts. */
    private static JSONObject negativeLevel(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            context.setDelayLevelWhenNextConsume(-1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        SendResult sent = world.send(topic, "m", 1, 0).get(0);
        JSONObject letter = deadLetter(world, group, topic, sent);
        Thread.sleep(SETTLE_MS);
        return Facts.of("given", deliveries.count(), "letter", letter);
    }

    private static DefaultMQPushConsumer failing(World world, String group, String topic, Deliveries deliveries)
        throws Exception {
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.subscribe(topic, "*");
        world.start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        return consumer;
    }

    /** maxReconsumeTimes=2: three attempts, then a dead letter that tells where it comes from. */
    private static JSONObject maximumOfTheConsumer(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = new Deliveries();
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(topic, "*");
        world.start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        SendResult sent = world.send(topic, "m", 1, 0).get(0);
        JSONObject letter = deadLetter(world, group, topic, sent);
        return Facts.of("given", Facts.each(deliveries.now(), one -> one.reconsumeTimes), "letter", letter);
    }

    /** Nobody set a maximum: seventeen attempts in all. */
    private static JSONObject defaultMaximum(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries deliveries = new Deliveries();
        failing(world, group, topic, deliveries);
        world.send(topic, "m", 1, 0);
        deliveries.await(17, 2 * World.WAIT_MS);
        List<MessageExt> dead = world.raw.read("%DLQ%" + group, 0, 1, World.WAIT_MS);
        return Facts.of("given", deliveries.count(), "last", deliveries.now().get(16).reconsumeTimes,
            "dead", Facts.each(dead, MessageExt::getReconsumeTimes));
    }

    /** An operator's repair: somebody subscribes to the dead letters. */
    private static JSONObject deadLettersConsumed(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.subscribe(topic, "*");
        world.start(consumer, new Deliveries(), (messages, context) -> {
            context.setDelayLevelWhenNextConsume(-1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        world.send(topic, "m", 3, 0);
        world.raw.read("%DLQ%" + group, 0, 3, World.WAIT_MS);
        Deliveries repaired = world.consume(world.group(), "%DLQ%" + group);
        List<Deliveries.Delivery> given = repaired.await(3, World.WAIT_MS);
        return Facts.of("keys", Facts.sorted(given, one -> one.key),
            "topic", Facts.each(given, one -> one.message.getTopic().equals("%DLQ%" + group)));
    }

    /** Of a batch of four the listener acknowledges two: the others come again. */
    private static JSONObject partOfABatch(World world) throws Exception {
        String topic = world.topic(1);
        world.send(topic, "m", 4, 0);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.setConsumeMessageBatchMaxSize(4);
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            if (messages.size() == 4) {
                context.setAckIndex(1);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(6, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key + " " + one.reconsumeTimes));
    }

    /** A group that filters by tag is given its failed messages again, and no others. */
    private static JSONObject tagFilter(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "red || green");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> deliveries.count(messages.get(0)) == 1
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        for (String tag : List.of("red", "blue", "green")) {
            world.producer().send(World.message(topic, tag, tag));
        }
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(4, World.WAIT_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key + " " + one.reconsumeTimes));
    }

    /** Who failed goes away in order before the message is due: the member that is left is given it. */
    private static JSONObject anotherMember(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        Deliveries first = new Deliveries();
        DefaultMQPushConsumer leaving = failing(world, group, topic, first);
        world.send(topic, "m", 1, 0);
        first.await(1, World.WAIT_MS);
        World.within(World.WAIT_MS, () -> world.raw.topicConfig("%RETRY%" + group) != null);
        Thread.sleep(200);
        leaving.shutdown();
        Deliveries second = world.consume(group, topic);
        List<Deliveries.Delivery> given = second.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("first", Facts.each(first.now(), one -> one.reconsumeTimes),
            "second", Facts.each(given, one -> one.reconsumeTimes));
    }

    /** A consumer that leaves in the middle of a message has not consumed it: it comes again, not as a retry. */
    private static JSONObject consumerLeft(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group();
        DefaultMQPushConsumer stuck = world.consumer(group);
        stuck.subscribe(topic, "*");
        Deliveries first = new Deliveries();
        CountDownLatch over = new CountDownLatch(1);
        world.start(stuck, first, (messages, context) -> {
            try {
                over.await(World.WAIT_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.send(topic, "m", 1, 0);
        first.await(1, World.WAIT_MS);
        stuck.shutdown();
        Deliveries second = world.consume(group, topic);
        List<Deliveries.Delivery> given = second.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        over.countDown();
        return Facts.of("second", Facts.each(given, one -> one.key + " " + one.reconsumeTimes));
    }

    /** A failure in one group is no other group's business. */
    private static JSONObject ownGroupOnly(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries well = world.consume(world.group(), topic);
        Deliveries badly = new Deliveries();
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        world.start(consumer, badly, (messages, context) -> badly.count() == 1
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        world.send(topic, "m", 1, 0);
        List<Deliveries.Delivery> given = badly.awaitAndSettle(2, World.WAIT_MS, SETTLE_MS);
        return Facts.of("badly", Facts.each(given, one -> one.reconsumeTimes),
            "well", Facts.each(well.now(), one -> one.reconsumeTimes));
    }
}
