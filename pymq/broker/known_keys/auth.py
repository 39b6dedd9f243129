"""Keys of Apache RocketMQ 5.5.0's access control, and the two of its address server. See `known_keys`."""

KEYS = """
configName str -
clusterName str -
authConfigPath str -
authenticationEnabled bool false
authenticationProvider str -
authenticationMetadataProvider str -
authenticationStrategy str -
authenticationWhitelist str -
initAuthenticationUser str -
innerClientAuthenticationCredentials str -
authorizationEnabled bool false
authorizationProvider str -
authorizationMetadataProvider str -
authorizationStrategy str -
authorizationWhitelist str -
migrateAuthFromV1Enabled bool false
userCacheMaxNum int 1000
userCacheExpiredSecond int 600
userCacheRefreshSecond int 60
aclCacheMaxNum int 1000
aclCacheExpiredSecond int 600
aclCacheRefreshSecond int 60
statefulAuthenticationCacheMaxNum int 10000
statefulAuthenticationCacheExpiredSecond int 60
statefulAuthorizationCacheMaxNum int 10000
statefulAuthorizationCacheExpiredSecond int 60
rmqAddressServerDomain str jmenv.tbsite.net
rmqAddressServerSubGroup str nsaddr
"""
