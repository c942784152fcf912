/* What the kinds of records in the journal are called, for those who write and who read them. */
#ifndef BPK_EDIT_RECORDS_H
#define BPK_EDIT_RECORDS_H

enum bpk_record {
    BPK_RECORD_ENTRY = 'E',
    BPK_RECORD_FILE = 'F',
    BPK_RECORD_CONTENT = 'C',
    BPK_RECORD_SHIFT = 'H',
    BPK_RECORD_BLOCKS = 'B',
    BPK_RECORD_STEM = 'S',
    BPK_RECORD_OVERRIDE = 'K',
    BPK_RECORD_MAPS = 'M',
    BPK_RECORD_SYNCED = 'Y',
    BPK_RECORD_COMMITTED = 'X',
    BPK_RECORD_SUSPECT = 'P',
    BPK_RECORD_CLOCK = 'N',
};

/* What a content lies over. */
enum { BPK_BELOW_NOTHING, BPK_BELOW_TENSOR, BPK_BELOW_CONTENT, BPK_BELOW_LOST };

/* What there is to a file beside the rest. */
enum { BPK_FILE_HAS_PARAM_ID = 1, BPK_FILE_WAS_MOVED = 2 };

/* What there is to an override. */
enum { BPK_OVERRIDE_HAS_VALUE = 1, BPK_OVERRIDE_IS_OLDER = 2 };

#endif
