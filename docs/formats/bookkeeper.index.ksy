# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_index
  title: 'BookKeeper ledger index'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: ledger_index
    type: ledger_index
types:
  ledger_index:
    seq:
      - id: signature
        contents: [66, 75, 76, 69]
        doc: 'BKLE'
      - id: version
        type: s4be
        doc: '0, or 1 with an explicit last-add-confirmed'
      - id: master_key_length
        type: s4be
        doc: 'usually 20'
      - id: master_key
        size: master_key_length
        doc: 'SHA-1 of the password'
      - id: state_bits
        type: s4be
        doc: 'state of the ledger'
      - id: explicit_lac
        type:
          switch-on: 'version < 1 ? 1 : 0'
          cases:
            0: explicit_lac
        doc: 'from version 1 on'
      - id: padding
        size: 'version < 1 ? (1008 - master_key_length) : ((1004 - master_key_length) - explicit_lac.data_length)'
        doc: 'zeros up to 1024 bytes'
      - id: locations
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 8'
        type: location
        if: '(_io.size - _io.pos) >= 8'
        doc: 'of entries 0, 1, 2, ...'
      - id: rest
        size-eos: true
        doc: 'less than a location'
    instances:
      state_bits_fenced:
        value: '(state_bits >> 0) & 1'
        doc: 'no client can add entries'
  explicit_lac:
    seq:
      - id: data_length
        type: s4be
        doc: '0 if none was set'
      - id: data
        size: data_length
        doc: 'ledger id, last-add-confirmed and digest'
  location:
    seq:
      - id: location
        type: s8be
        doc: 'log id and position; 0: none'
