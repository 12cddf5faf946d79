"""The records of Kafka's internal topics, in the notation of `schema`.

Source: the message definitions (`*Key.json`, `*Value.json`, `*Record.json`) of Kafka's modules group-coordinator,
transaction-coordinator, share-coordinator, metadata and storage, versions 2.8 to 4.3. Kafka 4 removed some of them, which older files
still have.
"""

from __future__ import annotations

from dataclasses import dataclass

from logwright.codec.kafka.formats.internal.schema import RecordType, record_type

_GROUP, _MEMBER = "group_id:string", "group_id:string; member_id:string"
_PARTITIONS = "[]{topic_id:uuid; partitions:[]int32}"
_EPOCHED = "[]{topic_id:uuid; partitions:[]int32; assignment_epochs:[]int32? @0 =[]}"
_TOPICS = """topics:[]{topic_id:uuid; topic_name:string; num_partitions:int32;
                       partition_metadata:[]{partition:int32; racks:[]string}}"""
_NAMED = "[]{topic_id:uuid; topic_name:string; partitions:[]int32}"
_TASKS = "[]{subtopology_id:string; partitions:[]int32}"
_EPOCHED_TASKS = "[]{subtopology_id:string; partitions:[]int32; assignment_epochs:[]int32? @0 =[]}"
_PAIRS = "[]{key:string; value:string}"
_INTERNAL_TOPICS = f"[]{{name:string; partitions:int32; replication_factor:int16; topic_configs:{_PAIRS}}}"
_TARGET = "assignment_epoch:int32; assignment_timestamp:int64 @0"
_COMMIT_KEY = "group:string; topic:string; partition:int32"
_COMMIT = """offset:int64; leader_epoch:int32 v3+ =-1; metadata:string; commit_timestamp:int64;
             expire_timestamp:int64 v1 =-1; topic_id:uuid v4+ @0"""

_GROUP_RECORDS = (
    record_type("LEGACY_OFFSET_COMMIT", 0, _COMMIT_KEY, _COMMIT, high=4, flexible=4, column="offset_commit"),
    record_type("OFFSET_COMMIT", 1, _COMMIT_KEY, _COMMIT, high=4, flexible=4),
    record_type(
        "GROUP_METADATA",
        2,
        "group:string",
        """protocol_type:string; generation:int32; protocol:string?; leader:string?; current_state_timestamp:int64 v2+ =-1;
           members:[]{member_id:string; group_instance_id:string? v3+ =null; client_id:string; client_host:string;
                      rebalance_timeout:int32 v1+ =-1; session_timeout:int32; subscription:bytes; assignment:bytes}""",
        high=4,
        flexible=4,
    ),
    record_type("CONSUMER_GROUP_METADATA", 3, _GROUP, "epoch:int32; metadata_hash:int64 @0"),
    record_type("CONSUMER_GROUP_PARTITION_METADATA", 4, _GROUP, _TOPICS),
    record_type(
        "CONSUMER_GROUP_MEMBER_METADATA",
        5,
        _MEMBER,
        """instance_id:string?; rack_id:string?; client_id:string; client_host:string; subscribed_topic_names:[]string;
           subscribed_topic_regex:string?; rebalance_timeout_ms:int32 =-1; server_assignor:string?;
           classic_member_metadata:{session_timeout_ms:int32; supported_protocols:[]{name:string; metadata:bytes}}? @0 ={}""",
    ),
    record_type("CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA", 6, _GROUP, _TARGET),
    record_type("CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER", 7, _MEMBER, f"topic_partitions:{_PARTITIONS}"),
    record_type(
        "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT",
        8,
        _MEMBER,
        f"""member_epoch:int32; previous_member_epoch:int32; state:int8; assigned_partitions:{_EPOCHED};
            partitions_pending_revocation:{_EPOCHED}""",
    ),
    record_type("SHARE_GROUP_PARTITION_METADATA", 9, _GROUP, _TOPICS),
    record_type(
        "SHARE_GROUP_MEMBER_METADATA",
        10,
        _MEMBER,
        "rack_id:string?; client_id:string; client_host:string; subscribed_topic_names:[]string",
    ),
    record_type("SHARE_GROUP_METADATA", 11, _GROUP, "epoch:int32; metadata_hash:int64"),
    record_type("SHARE_GROUP_TARGET_ASSIGNMENT_METADATA", 12, _GROUP, _TARGET),
    record_type("SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER", 13, _MEMBER, f"topic_partitions:{_PARTITIONS}"),
    record_type(
        "SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT",
        14,
        _MEMBER,
        f"member_epoch:int32; previous_member_epoch:int32; state:int8; assigned_partitions:{_PARTITIONS}",
    ),
    record_type(
        "SHARE_GROUP_STATE_PARTITION_METADATA",
        15,
        _GROUP,
        f"""initializing_topics:{_NAMED}; initialized_topics:{_NAMED};
            deleting_topics:[]{{topic_id:uuid; topic_name:string}}""",
    ),
    record_type(
        "CONSUMER_GROUP_REGULAR_EXPRESSION",
        16,
        "group_id:string; regular_expression:string",
        "topics:[]string; version:int64; timestamp:int64",
    ),
    record_type(
        "STREAMS_GROUP_METADATA",
        17,
        _GROUP,
        f"""epoch:int32; metadata_hash:int64; validated_topology_epoch:int32 @0 =-1;
            last_assignment_configs:{_PAIRS}? @1 =[]""",
    ),
    record_type(
        "STREAMS_GROUP_MEMBER_METADATA",
        19,
        _MEMBER,
        f"""instance_id:string?; rack_id:string?; client_id:string; client_host:string; rebalance_timeout_ms:int32 =-1;
            topology_epoch:int32; process_id:string; user_endpoint:{{host:string; port:uint16}}? =null; client_tags:{_PAIRS}""",
    ),
    record_type("STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA", 20, _GROUP, _TARGET),
    record_type(
        "STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER",
        21,
        _MEMBER,
        f"active_tasks:{_TASKS}; standby_tasks:{_TASKS}; warmup_tasks:{_TASKS}",
    ),
    record_type(
        "STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT",
        22,
        _MEMBER,
        f"""member_epoch:int32; previous_member_epoch:int32; state:int8; active_tasks:{_EPOCHED_TASKS};
            standby_tasks:{_EPOCHED_TASKS}; warmup_tasks:{_EPOCHED_TASKS}; active_tasks_pending_revocation:{_EPOCHED_TASKS};
            standby_tasks_pending_revocation:{_EPOCHED_TASKS}; warmup_tasks_pending_revocation:{_EPOCHED_TASKS}""",
    ),
    record_type(
        "STREAMS_GROUP_TOPOLOGY",
        23,
        _GROUP,
        f"""epoch:int32; subtopologies:[]{{subtopology_id:string; source_topics:[]string; source_topic_regex:[]string;
            state_changelog_topics:{_INTERNAL_TOPICS}; repartition_sink_topics:[]string;
            repartition_source_topics:{_INTERNAL_TOPICS};
            copartition_groups:[]{{source_topics:[]int16; source_topic_regex:[]int16; repartition_source_topics:[]int16}}}}""",
    ),
)

_TRANSACTION_RECORDS = (
    record_type(
        "TRANSACTION_LOG",
        0,
        "transactional_id:string",
        """producer_id:int64; previous_producer_id:int64 v1+ @0 =-1; next_producer_id:int64 v1+ @1 =-1; producer_epoch:int16;
           next_producer_epoch:int16 v1+ @3 =-1; transaction_timeout_ms:int32; transaction_status:int8;
           transaction_partitions:[]{topic:string; partition_ids:[]int32}?; transaction_last_update_timestamp_ms:int64;
           transaction_start_timestamp_ms:int64; client_transaction_version:int16 v1+ @2""",
        high=1,
        flexible=1,
    ),
)

_SHARE_KEY = "group_id:string; topic_id:uuid; partition:int32"
_BATCHES = "[]{first_offset:int64; last_offset:int64; delivery_state:int8; delivery_count:int16}"
_SHARE_RECORDS = (
    record_type(
        "SHARE_SNAPSHOT",
        0,
        _SHARE_KEY,
        f"""snapshot_epoch:int32; state_epoch:int32; leader_epoch:int32; start_offset:int64;
            delivery_complete_count:int32 @0 =-1; create_timestamp:int64; write_timestamp:int64; state_batches:{_BATCHES}""",
    ),
    record_type(
        "SHARE_UPDATE",
        1,
        _SHARE_KEY,
        f"""snapshot_epoch:int32; leader_epoch:int32; start_offset:int64; delivery_complete_count:int32 @0 =-1;
            state_batches:{_BATCHES}""",
    ),
)

_BROKER = "broker_id:int32; broker_epoch:int64"
_END_POINTS = "end_points:[]{name:string; host:string; port:uint16; security_protocol:int16}"
_FEATURES = "features:[]{name:string; min_supported_version:int16; max_supported_version:int16}"
_METADATA_RECORDS = (
    record_type(
        "REGISTER_BROKER_RECORD",
        0,
        "",
        f"""broker_id:int32; is_migrating_zk_broker:bool v2+; incarnation_id:uuid; broker_epoch:int64; {_END_POINTS}; {_FEATURES};
            rack:string?; fenced:bool =true; in_controlled_shutdown:bool v1+; log_dirs:[]uuid v3+ @0;
            cordoned_log_dirs:[]uuid? v4+ @1 =null""",
        high=4,
    ),
    record_type("UNREGISTER_BROKER_RECORD", 1, "", _BROKER),
    record_type("TOPIC_RECORD", 2, "", "name:string; topic_id:uuid"),
    record_type(
        "PARTITION_RECORD",
        3,
        "",
        """partition_id:int32 =-1; topic_id:uuid; replicas:[]int32; isr:[]int32; removing_replicas:[]int32;
           adding_replicas:[]int32; leader:int32 =-1; leader_recovery_state:int8 @0; leader_epoch:int32 =-1;
           partition_epoch:int32 =-1; directories:[]uuid v1+; eligible_leader_replicas:[]int32? v2+ @1 =null;
           last_known_elr:[]int32? v2+ @2 =null""",
        high=2,
    ),
    record_type(
        "CONFIG_RECORD", 4, "", "resource_type:int8; resource_name:string; name:string; value:string?"
    ),
    record_type(
        "PARTITION_CHANGE_RECORD",
        5,
        "",
        """partition_id:int32 =-1; topic_id:uuid; isr:[]int32? @0 =null; leader:int32 @1 =-2; replicas:[]int32? @2 =null;
           removing_replicas:[]int32? @3 =null; adding_replicas:[]int32? @4 =null; leader_recovery_state:int8 @5 =-1;
           directories:[]uuid? v1+ @8 =null; eligible_leader_replicas:[]int32? v2+ @6 =null;
           last_known_elr:[]int32? v2+ @7 =null""",
        high=2,
    ),
    record_type("FENCE_BROKER_RECORD", 7, "", "id:int32; epoch:int64"),
    record_type("UNFENCE_BROKER_RECORD", 8, "", "id:int32; epoch:int64"),
    record_type("REMOVE_TOPIC_RECORD", 9, "", "topic_id:uuid"),
    record_type(
        "DELEGATION_TOKEN_RECORD",
        10,
        "",
        """owner:string; requester:string; renewers:[]string; issue_timestamp:int64; max_timestamp:int64;
           expiration_timestamp:int64; token_id:string""",
    ),
    record_type(
        "USER_SCRAM_CREDENTIAL_RECORD",
        11,
        "",
        "name:string; mechanism:int8; salt:bytes; stored_key:bytes; server_key:bytes; iterations:int32",
    ),
    record_type("FEATURE_LEVEL_RECORD", 12, "", "name:string; feature_level:int16"),
    record_type(
        "CLIENT_QUOTA_RECORD",
        14,
        "",
        "entity:[]{entity_type:string; entity_name:string?}; key:string; value:float64; remove:bool",
    ),
    record_type(
        "PRODUCER_IDS_RECORD", 15, "", "broker_id:int32; broker_epoch:int64 =-1; next_producer_id:int64"
    ),
    record_type(
        "BROKER_REGISTRATION_CHANGE_RECORD",
        17,
        "",
        f"""{_BROKER}; fenced:int8 @0; in_controlled_shutdown:int8 v1+ @1; log_dirs:[]uuid v2+ @2;
            cordoned_log_dirs:[]uuid? v3+ @3 =null""",
        high=3,
    ),
    record_type(
        "ACCESS_CONTROL_ENTRY_RECORD",
        18,
        "",
        """id:uuid; resource_type:int8; resource_name:string; pattern_type:int8; principal:string; host:string; operation:int8;
           permission_type:int8""",
    ),
    record_type("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 19, "", "id:uuid"),
    record_type("NO_OP_RECORD", 20, "", ""),
    record_type("ZK_MIGRATION_STATE_RECORD", 21, "", "zk_migration_state:int8"),
    record_type("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 22, "", "name:string; mechanism:int8"),
    record_type("BEGIN_TRANSACTION_RECORD", 23, "", "name:string? @0 =null"),
    record_type("END_TRANSACTION_RECORD", 24, "", ""),
    record_type("ABORT_TRANSACTION_RECORD", 25, "", "reason:string? @0 =null"),
    record_type("REMOVE_DELEGATION_TOKEN_RECORD", 26, "", "token_id:string"),
    record_type(
        "REGISTER_CONTROLLER_RECORD",
        27,
        "",
        f"controller_id:int32; incarnation_id:uuid; zk_migration_ready:bool; {_END_POINTS}; {_FEATURES}",
    ),
    record_type("CLEAR_ELR_RECORD", 28, "", "topic_name:string"),
)

_VOTER_IDS = "[]{voter_id:int32}"
CONTROL = record_type("CONTROL", -1, "", "", control=True)
"""A control record of an unknown type."""
_CONTROL_RECORDS = (
    record_type(
        "LEADER_CHANGE",
        2,
        "",
        f"leader_id:int32; voters:{_VOTER_IDS}; granting_voters:{_VOTER_IDS}",
        control=True,
    ),
    record_type("SNAPSHOT_HEADER", 3, "", "last_contained_log_timestamp:int64", control=True),
    record_type("SNAPSHOT_FOOTER", 4, "", "", control=True),
    record_type("KRAFT_VERSION", 5, "", "k_raft_version:int16", control=True),
    record_type(
        "KRAFT_VOTERS",
        6,
        "",
        """voters:[]{voter_id:int32; voter_directory_id:uuid; endpoints:[]{name:string; host:string; port:uint16};
                     k_raft_version_feature:{min_supported_version:int16; max_supported_version:int16}}""",
        control=True,
    ),
    CONTROL,
)

_TOPIC_ID = "topic_id_partition:{name:string; id:uuid; partition:int32}"
_SEGMENT_ID = f"remote_log_segment_id:{{{_TOPIC_ID}; id:uuid}}"
_SEGMENT = """start_offset:int64; end_offset:int64; broker_id:int32; max_timestamp_ms:int64; event_timestamp_ms:int64;
              segment_leader_epochs:[]{leader_epoch:int32; offset:int64}; segment_size_in_bytes:int32;
              custom_metadata:bytes? =null; remote_log_segment_state:int8; txn_index_empty:bool @0"""
_REMOTE_RECORDS = (
    record_type("REMOTE_LOG_SEGMENT_METADATA_RECORD", 0, "", f"{_SEGMENT_ID}; {_SEGMENT}"),
    record_type(
        "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD",
        1,
        "",
        f"""{_SEGMENT_ID}; broker_id:int32; event_timestamp_ms:int64; custom_metadata:bytes? =null;
            remote_log_segment_state:int8""",
    ),
    record_type(
        "REMOTE_PARTITION_DELETE_METADATA_RECORD",
        2,
        "",
        f"{_TOPIC_ID}; broker_id:int32; event_timestamp_ms:int64; remote_partition_delete_state:int8",
    ),
    record_type("REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD", 3, "", f"segment_id:uuid; {_SEGMENT}"),
)


@dataclass(frozen=True)
class Topic:
    """An internal topic. With `framed`, the type of a record is in a frame around its value (`MetadataRecordSerde`), and there is no
    key; otherwise it is in the key (`CoordinatorRecordSerde`)."""

    view: str
    doc: str
    records: tuple[RecordType, ...]
    framed: bool = False

    @property
    def topic(self) -> str:
        return f"__{self.view}"

    @property
    def control(self) -> bool:
        """Whether its control records are rows of the view."""
        return any(kind.control for kind in self.records)


TOPICS = (
    Topic(
        "consumer_offsets",
        "committed offsets and the state of consumer, share and streams groups",
        _GROUP_RECORDS,
    ),
    Topic("transaction_state", "the state of transactional producers", _TRANSACTION_RECORDS),
    Topic("share_group_state", "the delivery state of share groups", _SHARE_RECORDS),
    Topic(
        "cluster_metadata",
        "the metadata of a KRaft cluster",
        (*_METADATA_RECORDS, *_CONTROL_RECORDS),
        framed=True,
    ),
    Topic("remote_log_metadata", "the segments in tiered storage", _REMOTE_RECORDS, framed=True),
)
