"""The store keys of Apache RocketMQ 5.5.0 with type and default; `!` marks what `-m` prints. See `known_keys`."""

KEYS = """
storePathRootDir str $HOME/store !
storePathCommitLog str - !
storePathDLedgerCommitLog str - !
storePathEpochFile str - !
storePathBrokerIdentity str - !
readOnlyCommitLogStorePaths str -
mappedFileSizeCommitLog int 1073741824
compactionMappedFileSize int 104857600
compactionCqMappedFileSize int 10485760
compactionScheduleInternal int 900000
maxOffsetMapSize int 104857600
compactionThreadNum int 6
enableCompaction bool true
mappedFileSizeTimerLog int 104857600
timerPrecisionMs int 1000
timerRollWindowSlot int 172800
timerFlushIntervalMs int 1000
timerGetMessageThreadNum int 3
timerPutMessageThreadNum int 3
timerEnableDisruptor bool false
timerEnableCheckMetrics bool true
timerInterceptDelayLevel bool false
timerMaxDelaySec int 259200
timerWheelSnapshotFlush bool false
timerWheelEnable bool true
disappearTimeAfterStart int -1 !
timerStopEnqueue bool false
timerCheckMetricsWhen str 05
timerSkipUnknownError bool false
timerWarmEnable bool false
timerStopDequeue bool false
timerEnableRetryUntilSuccess bool false
timerCongestNumEachSlot int 2147483647
timerMetricSmallThreshold int 1000000
timerProgressLogIntervalMs int 10000
timerWheelSnapshotIntervalMs int 10000
commitLogRecoverMaxNum int 10
timerRocksDBEnable bool false
timerRocksDBStopScan bool false
timerRocksDBPrecisionMs int 1000
timerRocksDBRollMaxTps float 8000.0
timerRocksDBTimeExpiredMaxTps float 200000.0
timerRocksDBRollIntervalHours int 1
timerRocksDBRollRangeHours int 2
timerRecallToTimeWheelEnable bool true
timerRecallToTimelineEnable bool true
timerReputServiceCorePoolSize int 6
timerReputServiceMaxPoolSize int 6
timerReputServiceQueueCapacity int 10000
transRocksDBEnable bool false
transWriteOriginTransHalfEnable bool true
indexRocksDBEnable bool false
maxRocksDBIndexQueryDays int 7
indexFileWriteEnable bool true
indexFileReadEnable bool true
storeType str default !
iteratorWhenUseRocksdbConsumeQueue bool true
mappedFileSizeConsumeQueue int 6000000
enableConsumeQueueExt bool false
mappedFileSizeConsumeQueueExt int 50331648
mapperFileSizeBatchConsumeQueue int 13800000
bitMapLengthConsumeQueueExt int 64
flushIntervalCommitLog int 500 !
commitIntervalCommitLog int 200 !
maxRecoveryCommitlogFiles int 30
diskSpaceWarningLevelRatio int 90
diskSpaceCleanForciblyRatio int 85
useReentrantLockWhenPutMessage bool true
flushCommitLogTimed bool true !
flushIntervalConsumeQueue int 1000
cleanResourceInterval int 10000
deleteCommitLogFilesInterval int 100
deleteConsumeQueueFilesInterval int 100
destroyMapedFileIntervalForcibly int 120000
redeleteHangedFileInterval int 120000
deleteWhen str 04 !
diskMaxUsedSpaceRatio int 75
fileReservedTime int 72 !
deleteFileBatchMax int 10 !
putMsgIndexHightWater int 600000
maxMessageSize int 4194304
maxFilterMessageSize int 16000
checkCRCOnRecover bool true
checkCommitLogOffsetOnRecover bool false
flushCommitLogLeastPages int 4
commitCommitLogLeastPages int 4
flushLeastPagesWhenWarmMapedFile int 4096
flushConsumeQueueLeastPages int 2
flushCommitLogThoroughInterval int 10000
commitCommitLogThoroughInterval int 200
flushConsumeQueueThoroughInterval int 60000
maxTransferBytesOnMessageInMemory int 262144 !
maxTransferCountOnMessageInMemory int 32 !
maxTransferBytesOnMessageInDisk int 65536 !
maxTransferCountOnMessageInDisk int 8 !
accessMessageInMemoryMaxRatio int 40 !
messageIndexEnable bool true !
maxHashSlotNum int 5000000
maxIndexNum int 20000000
maxMsgsNumBatch int 64
messageIndexSafe bool false !
haListenPort int 10912
haSendHeartbeatInterval int 5000
haHousekeepingInterval int 20000
haTransferBatchSize int 32768
haMasterAddress str - !
haMaxGapNotInSync int 268435456
brokerRole str ASYNC_MASTER !
flushDiskType str ASYNC_FLUSH !
syncFlushTimeout int 5000
putMessageTimeout int 8000
slaveTimeout int 3000
messageDelayLevel str 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
flushDelayOffsetInterval int 10000
cleanFileForciblyEnable bool true !
warmMapedFileEnable bool false
offsetCheckInSlave bool false
debugLockEnable bool false
duplicationEnable bool false
diskFallRecorded bool true
osPageCacheBusyTimeOutMills int 1000
defaultQueryMaxNum int 32
transientStorePoolEnable bool false !
transientStorePoolSize int 5
fastFailIfNoBufferInStorePool bool false
writeWithoutMmap bool false !
enableDLegerCommitLog bool false
dLegerGroup str -
dLegerPeers str -
dLegerSelfId str -
preferredLeaderId str -
enableBatchPush bool false
enableScheduleMessageStats bool true
enableLmq bool false
enableMultiDispatch bool false
maxLmqConsumeQueueNum int 20000
enableLmqQuota bool false
enableScheduleAsyncDeliver bool false
scheduleAsyncDeliverMaxPendingLimit int 2000
scheduleAsyncDeliverMaxResendNum2Blocked int 3
maxBatchDeleteFilesNum int 50
dispatchCqThreads int 10
dispatchCqCacheNum int 4096
enableAsyncReput bool true
recheckReputOffsetFromCq bool false
maxTopicLength int 127
autoMessageVersionOnTopicLen bool true
enableRunningFlagsInFlush bool false !
enabledAppendPropCRC bool false
forceVerifyPropCRC bool false
travelCqFileNumWhenGetMessage int 1
correctLogicMinOffsetSleepInterval int 1
correctLogicMinOffsetForceInterval int 300000
mappedFileSwapEnable bool true
commitLogForceSwapMapInterval int 43200000
commitLogSwapMapInterval int 3600000
commitLogSwapMapReserveFileNum int 100
logicQueueForceSwapMapInterval int 43200000
logicQueueSwapMapInterval int 3600000
cleanSwapedMapInterval int 300000
logicQueueSwapMapReserveFileNum int 20
searchBcqByCacheEnable bool true
dispatchFromSenderThread bool false !
wakeCommitWhenPutMessage bool true !
wakeFlushWhenPutMessage bool false !
enableCleanExpiredOffset bool false !
maxAsyncPutMessageRequests int 5000
pullBatchMaxMessageCount int 160
totalReplicas int 1 !
inSyncReplicas int 1 !
minInSyncReplicas int 1 !
allAckInSyncStateSet bool false !
enableAutoInSyncReplicas bool false !
haFlowControlEnable bool false !
maxHaTransferByteInSecond int 104857600
haMaxTimeSlaveNotCatchup int 15000
syncMasterFlushOffsetWhenStartup bool false
maxChecksumRange int 1073741824
replicasPerDiskPartition int 1
logicalDiskSpaceCleanForciblyThreshold float 0.8
maxSlaveResendLength int 268435456
syncFromLastFile bool false
asyncLearner bool false
maxConsumeQueueScan int 20000
sampleCountThreshold int 5000
coldDataFlowControlEnable bool false
coldDataScanEnable bool false
dataReadAheadEnable bool true
timerColdDataCheckIntervalMs int 60000
sampleSteps int 32
accessMessageInMemoryHotRatio int 26
enableBuildConsumeQueueConcurrently bool false
batchDispatchRequestThreadPoolNums int 16
cleanRocksDBDirtyCQIntervalMin int 60
statRocksDBCQIntervalSec int 10
memTableFlushIntervalMs int 3600000
realTimePersistRocksDBConfig bool true
enableRocksDBLog bool false
topicQueueLockNum int 32
readUnCommitted bool false
putConsumeQueueDataByFileChannel bool true
rocksdbCQDoubleWriteEnable bool false
combineCQLoadingCQTypes str default;defaultRocksDB
combineCQPreferCQType str default
combineAssignOffsetCQType str default
combineCQEnableCheckSelf bool false
combineCQMaxExtraSearchCommitLogFiles int 3
combineCQUseRocksdbForLmq bool false
bottomMostCompressionTypeForConsumeQueueStore str zstd
rocksdbCompressionType str lz4
rocksdbFlushWalFrequency int 1024
rocksdbWalFileRollingThreshold int 1073741824
enableAcceleratedRecovery bool false
sharedByteBufferNum int 16
useSeparateStorePathForRocksdbCQ bool false
spinLockCollisionRetreatOptimalDegree int 1000
useABSLock bool false
enableLogConsumeQueueRepeatedlyBuildWhenRecover bool false
appendTopicForTimerDeleteKey bool false
"""
