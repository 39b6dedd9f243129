"""The broker's control plane: RocketMQ's requests, tables and configuration, over the native store and transport.

One asyncio loop owns everything here, so there is no lock. What reactors may serve by themselves is published to them;
what waits for the disk runs in a small executor.

    controller     a broker: opened and closed in order          cli, watchdog, running   around it
    config, config_source, known_keys, config_update,            settings, and where they come from
    secret_values, reach                                         those that are not shown; who can reach a broker
    topics, topic_config, system_topics, attributes              topics.json
    groups, offsets, config_file, data_version                   subscriptionGroup.json, consumerOffset.json
    clients, subscriptions                                       who is connected, from heartbeats
    publishing, serving                                          what the reactors are told
    registration                                                 what the name servers are told
    store, queue_info, traffic, daily, runtime_info              the store, and what is said about it
    processors                                                   requests, by subject; processors.admin for tools
"""
