package org.pymq.interop.scenarios;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;

/** What listeners were given, in the order of their calls, with the time of each. */
final class Deliveries {
    /** One message, given once. */
    static final class Delivery {
        final MessageExt message;
        final String key;
        final int reconsumeTimes;
        final long atMs = System.currentTimeMillis();
        final String to;

        Delivery(MessageExt message, String to) {
            this.message = message;
            this.key = message.getKeys();
            // The client counts on in the same object when it gives it again.
            this.reconsumeTimes = message.getReconsumeTimes();
            this.to = to;
        }
    }

    private final List<Delivery> all = new ArrayList<>();

    synchronized void add(List<MessageExt> messages, String to) {
        messages.forEach(message -> all.add(new Delivery(message, to)));
        notifyAll();
    }

    synchronized List<Delivery> now() {
        return new ArrayList<>(all);
    }

    synchronized int count() {
        return all.size();
    }

    /** How often a message was given until now. */
    synchronized int count(MessageExt message) {
        return (int) all.stream().filter(one -> one.key.equals(message.getKeys())).count();
    }

    private synchronized boolean await(Predicate<List<Delivery>> enough, long timeoutMs) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (!enough.test(all)) {
            long rest = deadline - System.currentTimeMillis();
            if (rest <= 0) {
                return false;
            }
            wait(rest);
        }
        return true;
    }

    /** All of them once there are *count*, or when the time is up: how many there are is then a fact. */
    List<Delivery> await(int count, long timeoutMs) throws InterruptedException {
        await(seen -> seen.size() >= count, timeoutMs);
        return now();
    }

    /** The same, once there are *count* different keys. */
    List<Delivery> awaitKeys(int count, long timeoutMs) throws InterruptedException {
        await(seen -> distinct(seen).size() >= count, timeoutMs);
        return now();
    }

    /** All of them after another while in which one too many would come. */
    List<Delivery> awaitAndSettle(int count, long timeoutMs, long settleMs) throws InterruptedException {
        await(count, timeoutMs);
        Thread.sleep(settleMs);
        return now();
    }

    static Set<String> distinct(List<Delivery> deliveries) {
        return deliveries.stream().map(one -> one.key).collect(Collectors.toCollection(HashSet::new));
    }
}
