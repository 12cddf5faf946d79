# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_timercheck
  title: 'RocketMQ timercheck: the progress of the timer'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: timercheck
    type: timercheck
types:
  timercheck:
    seq:
      - id: last_read_time
        type: s8be
        doc: 'time up to which the wheel was read, in milliseconds since 1970'
      - id: last_timer_log_flush_pos
        type: s8be
        doc: 'offset up to which the timer log is flushed'
      - id: last_timer_queue_offset
        type: s8be
        doc: 'queue offset of the next message of the timer queue'
      - id: master_timer_queue_offset
        type: s8be
        doc: 'the same on the master'
      - id: data_version_state
        type: s8be
        doc: '`stateVersion` of the data version'
      - id: data_version_timestamp
        type: s8be
        doc: '`timestamp` of the data version'
      - id: data_version_counter
        type: s8be
        doc: '`counter` of the data version'
      - id: rest
        size-eos: true
        doc: 'zeros up to 4096 bytes'
