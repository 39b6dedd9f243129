package org.pymq.interop.clients;

import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.ClientConfig;

/** What every client here is given: its own identity, and intervals short enough for a test. */
final class Settings {
    private static final int POLL_NAME_SERVER_MS = 1_000;
    private static final int HEARTBEAT_MS = 5_000;
    private static final int PERSIST_OFFSET_MS = 1_000;

    private Settings() {
    }

    static void apply(ClientConfig client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        // Clients of one instance name share connections and heartbeats; each of ours is a client of its own.
        client.setInstanceName(request.getString("name") + "@" + ProcessHandle.current().pid());
        client.setVipChannelEnabled(request.getBooleanValue("vip"));
        client.setPollNameServerInterval(POLL_NAME_SERVER_MS);
        client.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        client.setPersistConsumerOffsetInterval(PERSIST_OFFSET_MS);
    }
}
