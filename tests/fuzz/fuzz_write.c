/* Any pack that opens is planned, written and read again: the same tensors, metadata and scalars;
 * and what we wrote is written the same, byte for byte, from then on. */
#include "fuzz.h"

#include "pack/writer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_same(const struct bpk_pack *a, const struct bpk_pack *b) {
    struct bpk_pack_info left;
    struct bpk_pack_info right;
    bpk_pack_get_info(a, &left);
    bpk_pack_get_info(b, &right);
    HOLDS(left.tensors == right.tensors && left.scalars == right.scalars);
    HOLDS(left.metadata_entries == right.metadata_entries);
    for (uint32_t i = 0; i < left.tensors; i++) {
        HOLDS(fuzz_str_equal(bpk_pack_tensor_name(a, i), bpk_pack_tensor_name(b, i)));
        fuzz_check_same_tensor(a, i, b, i);
    }
    for (uint32_t i = 0; i < left.metadata_entries; i++) {
        struct bpk_str keys[2];
        struct bpk_str values[2];
        bpk_pack_metadata(a, i, &keys[0], &values[0]);
        bpk_pack_metadata(b, i, &keys[1], &values[1]);
        HOLDS(fuzz_str_equal(keys[0], keys[1]) && fuzz_str_equal(values[0], values[1]));
    }
    for (uint32_t i = 0; i < left.scalars; i++) {
        struct bpk_scalar scalars[2];
        bpk_pack_scalar(a, i, &scalars[0]);
        bpk_pack_scalar(b, i, &scalars[1]);
        HOLDS(fuzz_str_equal(scalars[0].name, scalars[1].name));
        HOLDS(scalars[0].kind == scalars[1].kind && scalars[0].bits == scalars[1].bits);
    }
}

/* Writes the pack as it is into `fd`. Placed as for a filesystem that shares blocks, or not. */
static bool write_again(struct bpk_pack *pack, bool can_clone, int fd, const char *path) {
    struct bpk_plan plan;
    struct bpk_diag diag = {0};
    struct bpk_written written = {0};
    HOLDS(bpk_plan_from_pack(pack, &plan) == 0);
    int r = bpk_plan_place(&plan, can_clone, &diag);
    if (r < 0)
        fuzz_check_sentence(diag.sentence);
    if (r == 0) {
        r = bpk_writer_write(&plan, fd, can_clone, NULL, &written, &diag);
        ck_assert_msg(r == 0, "not written: %s", diag.sentence);
        HOLDS(lseek(fd, 0, SEEK_END) == (off_t)bpk_plan_file_size(&plan));
        r = bpk_writer_verify(&plan, path, &diag);
        ck_assert_msg(r == 0, "not verified: %s", diag.sentence);
    }
    bpk_plan_clear(&plan);
    return r == 0;
}

static void check_same_file(int a, int b) {
    off_t size = lseek(a, 0, SEEK_END);
    HOLDS(lseek(b, 0, SEEK_END) == size);
    void *left = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, a, 0);
    void *right = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, b, 0);
    HOLDS(left != MAP_FAILED && right != MAP_FAILED);
    HOLDS(memcmp(left, right, (size_t)size) == 0);
    munmap(left, (size_t)size);
    munmap(right, (size_t)size);
}

/* Kept data that starts off a multiple of 256, behind a header that happens to end on one, is the
 * same in the old layout and is taken for it: what is written of that again is the new layout. */
static void rewrite(struct bpk_pack *pack, bool can_clone) {
    char path[FUZZ_PATH];
    char again_path[FUZZ_PATH];
    int fd = fuzz_file("", 0, path);
    int again = fuzz_file("", 0, again_path);
    if (write_again(pack, can_clone, fd, path)) {
        struct bpk_pack *written = fuzz_open(path, NULL);
        HOLDS(written);
        check_same(pack, written);
        struct bpk_pack_info info;
        bpk_pack_get_info(written, &info);
        if (info.layout == BPK_LAYOUT_ALIGNED) {
            HOLDS(write_again(written, can_clone, again, again_path));
            check_same_file(fd, again);
        } else {
            HOLDS((BPK_HEADER_SIZE + info.cbor_size) % BPK_ALIGNMENT == 0);
            HOLDS(info.cbor_size == info.metadata_size);
            rewrite(written, can_clone);
        }
        bpk_pack_unref(written);
    }
    close(again);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[FUZZ_PATH];
    int fd = fuzz_file(data, size, path);
    struct bpk_pack *pack = fuzz_open(path, NULL);
    if (pack) {
        rewrite(pack, false);
        rewrite(pack, true);
    }
    bpk_pack_unref(pack);
    close(fd);
    return 0;
}
