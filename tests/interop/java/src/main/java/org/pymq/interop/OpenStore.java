package org.pymq.interop;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.io.File;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.config.StorePathConfigHelper;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A DefaultMessageStore taken through the steps the broker takes it through: construct, load, start, shut down. */
final class OpenStore {
    private static final long DISPATCH_WAIT_MS_MAX = 60_000;

    final DefaultMessageStore store;
    private final File abortFile;

    private OpenStore(DefaultMessageStore store, File abortFile) {
        this.store = store;
        this.abortFile = abortFile;
    }

    /** Which step refused, and what it said. */
    static final class OpenFailed extends Exception {
        private static final long serialVersionUID = 1L;
        final String stage;

        OpenFailed(String stage, String message) {
            super(message);
            this.stage = stage;
        }
    }

    static OpenStore open(Options options) throws Exception {
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        BrokerConfig brokerConfig = new BrokerConfig();
        storeConfig.setStorePathRootDir(options.store);
        storeConfig.setHaListenPort(0);
        for (String name : options.settings.stringPropertyNames()) {
            if (!hasSetter(storeConfig, name) && !hasSetter(brokerConfig, name)) {
                throw new IllegalArgumentException("neither MessageStoreConfig nor BrokerConfig has " + name);
            }
        }
        Properties settings = options.settings;
        MixAll.properties2Object(settings, brokerConfig);
        MixAll.properties2Object(settings, storeConfig);

        BrokerStatsManager stats = new BrokerStatsManager(brokerConfig.getBrokerClusterName(), true);
        DefaultMessageStore store = new DefaultMessageStore(storeConfig, stats,
            (topic, queueId, offset, tagsCode, storeTime, bitMap, properties) -> { },
            brokerConfig, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new OpenFailed("load", "DefaultMessageStore.load() returned false");
        }
        try {
            store.start();
        } catch (Exception problem) {
            throw new OpenFailed("start", problem.toString());
        }
        OpenStore opened = new OpenStore(store, new File(StorePathConfigHelper.getAbortFile(options.store)));
        opened.awaitDispatched();
        return opened;
    }

    private static boolean hasSetter(Object config, String name) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        return Arrays.stream(config.getClass().getMethods()).map(Method::getName).anyMatch(setter::equals);
    }

    /** Queues and index lag the log by the dispatch thread's pace; what is read must not depend on that. */
    void awaitDispatched() throws InterruptedException {
        long deadline = System.currentTimeMillis() + DISPATCH_WAIT_MS_MAX;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("dispatch is " + store.dispatchBehindBytes() + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    /** Shuts down, and says whether the store called it clean (it then removes its abort file). */
    boolean shutdown() throws InterruptedException {
        awaitDispatched();
        store.shutdown();
        return !abortFile.exists();
    }
}
