package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Part 1: what a subscription group's configuration does to its consumers, and who tells whom about a change. */
final class GroupScenarios {
    private static final int SHORT_MS = 1_500;
    private static final int TOLD_WITHIN_MS = 8_000;

    private GroupScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("group-consume-disabled", GroupScenarios::consumeDisabled);
        all.put("group-broadcast-refused", GroupScenarios::broadcastRefused);
        all.put("group-notify-on-change", world -> notifyOnChange(world, true));
        all.put("group-notify-switched-off", world -> notifyOnChange(world, false));
        all.put("group-retry-max-of-the-group", GroupScenarios::retryMaxOfTheGroup);
        all.put("group-retry-max-client-wins", GroupScenarios::retryMaxClientWins);
        all.put("group-retry-queues", GroupScenarios::retryQueues);
        all.put("group-slow-reader-sent-elsewhere", GroupScenarios::whichBrokerWhenSlow);
        all.put("group-unknown-refused", GroupScenarios::unknownRefused);
    }

    /** consumeEnable=false: refused with NO_PERMISSION; switched on again, everything comes. */
    private static JSONObject consumeDisabled(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("consumeEnable", false);
        world.send(topic, "m", 5, 0);
        Deliveries deliveries = world.consume(group, topic);
        int code = world.raw.pull(group, topic, 0, 0, Raw.FLAG_SUBSCRIPTION).getCode();
        Thread.sleep(SHORT_MS);
        int while_off = deliveries.count();
        world.updateGroup(group, "consumeEnable", true);
        return Facts.of("code", code, "whileOff", while_off,
            "afterwards", Facts.sorted(deliveries.await(5, World.WAIT_MS), one -> one.key));
    }

    /** consumeBroadcastEnable=false: a broadcasting member is given nothing. */
    private static JSONObject broadcastRefused(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("consumeBroadcastEnable", false);
        world.send(topic, "m", 5, 0);
        DefaultMQPushConsumer consumer = world.consumer(group);
        World.broadcasting(consumer);
        Deliveries deliveries = world.consume(consumer, topic, "*");
        Thread.sleep(SHORT_MS);
        return Facts.of("code", world.raw.pull(group, topic, 0, 0, 0).getCode(), "received", deliveries.count());
    }

    /** A second member: the first is told at once, or finds out when it looks for itself 20 s later. */
    private static JSONObject notifyOnChange(World world, boolean enabled) throws Exception {
        String topic = world.topic(4);
        String group = world.group("notifyConsumerIdsChangedEnable", enabled);
        DefaultMQPushConsumer first = world.consumer(group);
        world.consume(first, topic, "*");
        boolean alone = World.within(World.WAIT_MS, () -> World.queuesOf(first, topic) == 4);
        DefaultMQPushConsumer second = world.consumer(group);
        world.consume(second, topic, "*");
        boolean told = World.within(TOLD_WITHIN_MS, () -> World.queuesOf(first, topic) == 2);
        return Facts.of("alone", alone, "told", told);
    }

    private static int sendBack(World world, String group, MessageExt message) throws Exception {
        return world.raw.ask(Raw.CONSUMER_SEND_MSG_BACK, "offset", message.getCommitLogOffset(), "group", group,
            "delayLevel", 0, "originMsgId", message.getMsgId(), "originTopic", message.getTopic(), "unitMode", false)
            .getCode();
    }

    /** retryMaxTimes=1 for clients that do not say a maximum themselves: the second failure is the last. */
    private static JSONObject retryMaxOfTheGroup(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("retryMaxTimes", 1);
        world.send(topic, "m", 1, 0);
        int first = sendBack(world, group, world.raw.read(topic, 0, 1, World.WAIT_MS).get(0));
        List<MessageExt> retried = world.raw.read("%RETRY%" + group, 0, 1, World.WAIT_MS);
        int second = sendBack(world, group, retried.get(0));
        List<MessageExt> dead = world.raw.read("%DLQ%" + group, 0, 1, World.WAIT_MS);
        return Facts.of("codes", List.of(first, second), "retried", Facts.each(retried, MessageExt::getReconsumeTimes),
            "dead", Facts.each(dead, MessageExt::getReconsumeTimes));
    }

    /** The Java client always says a maximum, 16 unless set: the group's own does not count for it. */
    private static JSONObject retryMaxClientWins(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("retryMaxTimes", 1);
        DefaultMQPushConsumer consumer = world.consumer(group);
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        world.send(topic, "m", 1, 0);
        List<MessageExt> dead = world.raw.read("%DLQ%" + group, 0, 1, World.WAIT_MS);
        return Facts.of("given", Facts.each(deliveries.now(), one -> one.reconsumeTimes), "dead", dead.size());
    }

    /** retryQueueNums=3: that many queues has the group's retry topic. */
    private static JSONObject retryQueues(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("retryQueueNums", 3);
        world.send(topic, "m", 1, 0);
        sendBack(world, group, world.raw.read(topic, 0, 1, World.WAIT_MS).get(0));
        JSONObject retry = world.raw.topicConfig("%RETRY%" + group);
        return Facts.of("read", retry.getIntValue("readQueueNums"), "write", retry.getIntValue("writeQueueNums"),
            "permission", retry.getIntValue("perm"));
    }

    /** A pull's answer says which broker to ask next: the group's brokerId while reading is fast. */
    private static JSONObject whichBrokerWhenSlow(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.group("brokerId", 3, "whichBrokerWhenConsumeSlowly", 5);
        world.send(topic, "m", 1, 0);
        world.raw.read(topic, 0, 1, World.WAIT_MS);
        var answer = world.raw.pull(group, topic, 0, 0, Raw.FLAG_SUBSCRIPTION);
        return Facts.of("code", answer.getCode(), "broker", answer.getExtFields().get("suggestWhichBrokerId"));
    }

    /** Where groups are not made by themselves (its broker's setting), one that nobody made is refused. */
    private static JSONObject unknownRefused(World world) throws Exception {
        String topic = world.topic(1);
        List<SendResult> sent = world.send(topic, "m", 1, 0);
        String group = world.name("unknown");
        int pull = world.raw.pull(group, topic, 0, 0, Raw.FLAG_SUBSCRIPTION).getCode();
        long offset = MessageDecoder.decodeMessageId(sent.get(0).getOffsetMsgId()).getOffset();
        int back = world.raw.ask(Raw.CONSUMER_SEND_MSG_BACK, "offset", offset, "group", group, "delayLevel", 0).getCode();
        return Facts.of("pull", pull, "sendBack", back);
    }
}
