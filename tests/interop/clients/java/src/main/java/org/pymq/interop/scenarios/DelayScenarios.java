package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Part 4: delay levels and exact times. Levels here are 1 s, 2 s for level 2, 3 s for level 18, the last. */
final class DelayScenarios {
    /** Timers count in seconds: a message may come up to one before its time. */
    private static final int TIMER_PRECISION_MS = 1_000;
    private static final int SETTLE_MS = 1_500;
    private static final long DAY_MS = 24L * 3600 * 1000;

    private DelayScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("delay-level-1", world -> level(world, 1, 1_000));
        all.put("delay-level-2", world -> level(world, 2, 2_000));
        all.put("delay-level-last", world -> level(world, 18, 3_000));
        all.put("delay-level-beyond-the-last", world -> level(world, 99, 3_000));
        all.put("delay-level-0-is-none", world -> level(world, 0, 0));
        all.put("delay-order-within-a-level", DelayScenarios::orderWithinALevel);
        all.put("delay-levels-side-by-side", DelayScenarios::sideBySide);
        all.put("timer-delay-seconds", world -> timer(world, "TIMER_DELAY_SEC", "2", 2_000));
        all.put("timer-delay-milliseconds", world -> timer(world, "TIMER_DELAY_MS", "2500", 2_500));
        all.put("timer-deliver-time", world -> timer(world, "TIMER_DELIVER_MS", null, 3_000));
        all.put("timer-past-time", world -> timer(world, "TIMER_DELIVER_MS", null, -60_000));
        all.put("timer-beyond-the-maximum", DelayScenarios::beyondTheMaximum);
        all.put("timer-not-a-number", DelayScenarios::notANumber);
        all.put("timer-and-level-level-wins", DelayScenarios::levelWins);
        all.put("timer-recall", DelayScenarios::recall);
        all.put("timer-recall-of-nonsense", DelayScenarios::recallNonsense);
    }

    private static JSONObject described(Deliveries.Delivery one, String topic) {
        return Facts.of("topic", one.message.getTopic().equals(topic), "queue", one.message.getQueueId(),
            "reconsumeTimes", one.reconsumeTimes, "body", new String(one.message.getBody()),
            "properties", Facts.properties(one.message));
    }

    /** When the broker put it into its queue; when a busy client gets round to pulling it is another matter. */
    private static String came(Deliveries.Delivery one, int delayMs, int earlyMs) {
        return Facts.punctuality(one.message.getStoreTimestamp(), one.message.getBornTimestamp() + delayMs, earlyMs);
    }

    private static JSONObject level(World world, int level, int delayMs) throws Exception {
        String topic = world.topic(4);
        Deliveries deliveries = world.consume(world.group(), topic);
        Message message = World.message(topic, "tag", "m");
        message.setDelayTimeLevel(level);
        world.producer().send(message, world.queue(topic, 2));
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("count", given.size(), "came", came(given.get(0), delayMs, 0),
            "message", described(given.get(0), topic));
    }

    /** Messages of one level come in the order in which they were sent. */
    private static JSONObject orderWithinALevel(World world) throws Exception {
        String topic = world.topic(1);
        int visible = 0;
        for (int i = 0; i < 40; i++) {
            Message message = World.message(topic, "tag", "0-" + i);
            message.setDelayTimeLevel(1);
            world.producer().send(message);
            visible += i == 0 ? world.raw.read(topic, 0).size() : 0;
        }
        Deliveries deliveries = new Deliveries();
        OrderScenarios.orderly(world, world.group(), topic, deliveries, 0);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(40, World.WAIT_MS, SETTLE_MS);
        return Facts.of("atFirst", visible, "count", given.size(), "inversions", OrderScenarios.inversions(given));
    }

    /** The longer of two delays that begin together ends later, whoever was sent first: the order in the queue. */
    private static JSONObject sideBySide(World world) throws Exception {
        String topic = world.topic(1);
        for (int level : new int[] {18, 2, 1, 0}) {
            Message message = World.message(topic, "tag", "level-" + level);
            message.setDelayTimeLevel(level);
            world.producer().send(message);
        }
        return Facts.of("order", Facts.each(world.raw.read(topic, 0, 4, World.WAIT_MS), MessageExt::getKeys));
    }

    /** A timed message; without a *value*, for the time that is *delayMs* ahead when it is sent. */
    private static JSONObject timer(World world, String property, String value, int delayMs) throws Exception {
        String topic = world.topic(4);
        Deliveries deliveries = world.consume(world.group(), topic);
        Message message = World.message(topic, "tag", "m");
        long due = System.currentTimeMillis() + delayMs;
        MessageAccessor.putProperty(message, property, value == null ? String.valueOf(due) : value);
        world.producer().send(message, world.queue(topic, 2));
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, SETTLE_MS);
        return Facts.of("count", given.size(),
            "came", came(given.get(0), Math.max(delayMs, 0), TIMER_PRECISION_MS),
            "message", described(given.get(0), topic));
    }

    private static String sendTimed(World world, String topic, String property, String value) {
        Message message = World.message(topic, "tag", "m");
        MessageAccessor.putProperty(message, property, value);
        return Facts.outcome(() -> world.producer().send(message));
    }

    /** Three days is the most, unless configured: four are refused in each of the three ways to say so. */
    private static JSONObject beyondTheMaximum(World world) throws Exception {
        String topic = world.topic(1);
        long beyond = 4 * DAY_MS;
        return Facts.of("seconds", sendTimed(world, topic, "TIMER_DELAY_SEC", String.valueOf(beyond / 1000)),
            "milliseconds", sendTimed(world, topic, "TIMER_DELAY_MS", String.valueOf(beyond)),
            "time", sendTimed(world, topic, "TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + beyond)));
    }

    private static JSONObject notANumber(World world) throws Exception {
        return Facts.of("outcome", sendTimed(world, world.topic(1), "TIMER_DELAY_SEC", "soon"));
    }

    /** Both a level and a timer: the level counts. */
    private static JSONObject levelWins(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        Message message = World.message(topic, "tag", "m");
        message.setDelayTimeLevel(1);
        MessageAccessor.putProperty(message, "TIMER_DELAY_SEC", "3600");
        world.producer().send(message);
        List<Deliveries.Delivery> given = deliveries.await(1, World.WAIT_MS);
        return Facts.of("came", came(given.get(0), 1_000, 0),
            "message", described(given.get(0), topic));
    }

    private static Object recallHandle(SendResult sent) throws Exception {
        return SendResult.class.getMethod("getRecallHandle").invoke(sent);
    }

    private static Object recall(DefaultMQProducer producer, String topic, Object handle) throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (java.lang.reflect.InvocationTargetException thrown) {
            throw (Exception) thrown.getCause();
        }
    }

    /** Of two timed messages one is called back. Only clients of 5.x can. */
    private static JSONObject recall(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        List<SendResult> sent = new ArrayList<>();
        for (String key : List.of("kept", "recalled")) {
            Message message = World.message(topic, "tag", key);
            MessageAccessor.putProperty(message, "TIMER_DELAY_SEC", "4");
            sent.add(world.producer().send(message));
        }
        Object handle = recallHandle(sent.get(1));
        Object id = recall(world.producer(), topic, handle);
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(1, World.WAIT_MS, 2 * SETTLE_MS);
        SendResult plain = world.producer().send(World.message(world.topic(1), "tag", "plain"));
        return Facts.of("handle", handle != null, "id", sent.get(1).getMsgId().equals(id),
            "given", Facts.each(given, one -> one.key), "handleOfAPlainOne", recallHandle(plain) != null);
    }

    private static JSONObject recallNonsense(World world) throws Exception {
        String topic = world.topic(1);
        return Facts.of("outcome", Facts.outcome(() -> recall(world.producer(), topic, "nonsense")));
    }
}
