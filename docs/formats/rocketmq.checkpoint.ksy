# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_checkpoint
  title: 'RocketMQ checkpoint: the store times up to which files are flushed'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: checkpoint
    type: checkpoint
types:
  checkpoint:
    seq:
      - id: physic_msg_timestamp
        type: s8be
        doc: 'store time of the last message flushed to the commit log, in milliseconds since 1970'
      - id: logics_msg_timestamp
        type: s8be
        doc: 'store time of the last message added to a consume queue'
      - id: index_msg_timestamp
        type: s8be
        doc: 'store time of the last entry of the last full index file'
      - id: master_flushed_offset
        type: s8be
        doc: 'offset up to which the master has flushed; from 5.0.0 on'
      - id: confirm_phy_offset
        type: s8be
        doc: 'offset of the last confirmed message; from 5.1.1 on'
      - id: logics_physical_offset
        type: s8be
        doc: 'offset of a message whose consume queue unit is flushed; from 5.5.0 on'
      - id: rest
        size-eos: true
        doc: 'zeros up to 4096 bytes'
