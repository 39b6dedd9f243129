package org.pymq.interop.scenarios;

import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** What is under way when the broker is stopped in order and started again. They are played together. */
final class RestartScenarios {
    private static final int SETTLE_MS = 2_000;
    private static final int LATE_MS = 2 * World.WAIT_MS;

    private RestartScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("restart-keeps-order", RestartScenarios::order);
        all.put("restart-keeps-delayed-messages", world -> delayed(world, "DELAY", "18"));
        all.put("restart-keeps-timers", world -> delayed(world, "TIMER_DELAY_SEC", "5"));
        all.put("restart-keeps-half-messages", RestartScenarios::half);
        all.put("restart-keeps-retries", RestartScenarios::retries);
    }

    private static void sendWhenItIsBack(World world, String topic, String key) throws Exception {
        boolean sent = World.within(LATE_MS, () -> Facts.outcome(
            () -> world.producer().send(World.message(topic, "tag", key), world.queue(topic, 0))).equals("ok"));
        World.demand(sent, "the broker did not come back");
    }

    private static JSONObject order(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = new Deliveries();
        OrderScenarios.sendRounds(world, topic, 1, 0, 200);
        OrderScenarios.orderly(world, world.group(), topic, deliveries, 20);
        deliveries.await(30, World.WAIT_MS);
        world.restartBroker();
        sendWhenItIsBack(world, topic, "0-200");
        OrderScenarios.sendRounds(world, topic, 1, 201, 49);
        List<Deliveries.Delivery> given = deliveries.awaitKeys(250, LATE_MS);
        return Facts.of("distinct", Deliveries.distinct(given).size(), "inversions", OrderScenarios.inversions(given));
    }

    private static JSONObject delayed(World world, String property, String value) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        for (int i = 0; i < 10; i++) {
            Message message = World.message(topic, "tag", "m" + i);
            MessageAccessor.putProperty(message, property, value);
            world.producer().send(message);
        }
        world.restartBroker();
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(10, LATE_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key));
    }

    private static JSONObject half(World world) throws Exception {
        String topic = world.topic(1);
        Deliveries deliveries = world.consume(world.group(), topic);
        boolean[] restarted = new boolean[1];
        var decider = new TransactionScenarios.Decider(LocalTransactionState.UNKNOW, count -> restarted[0]
            ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = TransactionScenarios.producer(world, world.name("producers"), decider);
        producer.sendMessageInTransaction(World.message(topic, "tag", "half"), null);
        var committing = new TransactionScenarios.Decider(LocalTransactionState.COMMIT_MESSAGE,
            count -> LocalTransactionState.ROLLBACK_MESSAGE);
        TransactionScenarios.producer(world, world.name("producers"), committing)
            .sendMessageInTransaction(World.message(topic, "tag", "committed"), null);
        deliveries.await(1, World.WAIT_MS);
        Thread.sleep(1_000);
        world.restartBroker();
        restarted[0] = true;
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(2, LATE_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key));
    }

    private static JSONObject retries(World world) throws Exception {
        String topic = world.topic(1);
        DefaultMQPushConsumer consumer = world.consumer(world.group());
        consumer.subscribe(topic, "*");
        Deliveries deliveries = new Deliveries();
        world.start(consumer, deliveries, (messages, context) -> {
            context.setDelayLevelWhenNextConsume(18);
            return messages.get(0).getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.send(topic, "m", 5, 0);
        deliveries.await(5, World.WAIT_MS);
        Thread.sleep(1_000);
        world.restartBroker();
        List<Deliveries.Delivery> given = deliveries.awaitAndSettle(10, LATE_MS, SETTLE_MS);
        return Facts.of("given", Facts.sorted(given, one -> one.key + " " + one.reconsumeTimes));
    }
}
