# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_timercheck
  title: 'RocketMQ timercheck: how far the timer has come'
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
        doc: 'the time up to which the wheel was read, in milliseconds'
      - id: last_timer_log_flush_pos
        type: s8be
        doc: 'how far the timer log is flushed'
      - id: last_timer_queue_offset
        type: s8be
        doc: 'number of the next message of the timer queue'
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
