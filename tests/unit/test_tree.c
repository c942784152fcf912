/* tree: dotted names as folders: "@", empty segments, limits, siblings that sort between, and that
 * listing, looking up, cursors and parents agree for any set of names (semantics.md 1). */
#include "view/tree.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct bpk_tree_node root = {BPK_TREE_FOLDER, 0, 0};

/* ---- a walk that checks everything on its way ------------------------------------------------ */

struct walk {
    const struct bpk_pack *pack;
    uint32_t *tensors; /* how often each was met, as link and as sidecar */
    uint32_t *sidecars;
    char name[2000]; /* the folder's prefix, with the dot */
    size_t name_len;
    char path[8000]; /* the folder's, with the slash */
    size_t path_len;
    char listing[20000]; /* paths, one a line, as many as fit */
    size_t listing_len;
};

static bool same_node(const struct bpk_tree_node *a, const struct bpk_tree_node *b) {
    return a->kind == b->kind && a->tensor == b->tensor && a->segments == b->segments;
}

static void note_path(struct walk *walk, const char *file, const struct bpk_tree_node *node) {
    size_t room = sizeof(walk->listing) - walk->listing_len;
    int n = snprintf(walk->listing + walk->listing_len, room, "%.*s%s%s\n", (int)walk->path_len,
                     walk->path, file, node->kind == BPK_TREE_FOLDER ? "/" : "");
    if ((size_t)n < room)
        walk->listing_len += (size_t)n;
    else
        walk->listing[walk->listing_len] = '\0';
}

/* Adds the segment that `file` is made of to the prefix; returns the length with it. */
static size_t add_segment(struct walk *walk, struct bpk_str file) {
    HOLDS(walk->name_len + file.len + 1 < sizeof(walk->name));
    int n = bpk_name_decode(file, walk->name + walk->name_len);
    HOLDS(n >= 0);
    return walk->name_len + (size_t)n;
}

/* The name that a link stands for is that of its tensor. */
static void check_link(struct walk *walk, const char *file, const struct bpk_tree_node *node) {
    struct bpk_str stem = str(file);
    if (node->kind == BPK_TREE_SIDECAR) {
        HOLDS(strcmp(file + stem.len - 5, ".json") == 0);
        stem.len -= 5;
    }
    size_t len = walk->name_len - 1; /* "@": the folder's own name, without the dot */
    if (stem.len != 1 || stem.bytes[0] != '@')
        len = add_segment(walk, stem);
    struct bpk_str found = bpk_pack_tensor_name(walk->pack, node->tensor);
    HOLDS(found.len == len);
    HOLDS(memcmp(found.bytes, walk->name, len) == 0);
}

static void walk_folder(struct walk *walk, const struct bpk_tree_node *folder);

/* Goes into `node`, whose file name is `file`, and comes back. */
static void walk_into(struct walk *walk, const struct bpk_tree_node *folder, const char *file,
                      const struct bpk_tree_node *node) {
    size_t name_len = walk->name_len;
    size_t path_len = walk->path_len;
    struct bpk_tree_node parent = bpk_tree_parent(walk->pack, node);
    HOLDS(node->segments == folder->segments + 1);
    HOLDS(same_node(&parent, folder));
    walk->name_len = add_segment(walk, str(file));
    walk->name[walk->name_len++] = '.';
    HOLDS(path_len + strlen(file) + 2 < sizeof(walk->path));
    walk->path_len += (size_t)sprintf(walk->path + path_len, "%s/", file);
    walk_folder(walk, node);
    walk->name_len = name_len;
    walk->path_len = path_len;
}

static void walk_folder(struct walk *walk, const struct bpk_tree_node *folder) {
    uint64_t cursor = 0;
    uint64_t before = 0;
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tree_node node;
    unsigned entries = 0;
    while (bpk_tree_next(walk->pack, folder, &cursor, file, &node)) {
        char file_again[BPK_FILE_NAME_BUF];
        struct bpk_tree_node again;
        entries++;
        HOLDS(strlen(file) <= 255);
        HOLDS(!strchr(file, '/'));
        HOLDS(file[0] != '.');
        /* looked up, it is the same */
        HOLDS(bpk_tree_find(walk->pack, folder, str(file), &again) == 0);
        HOLDS(same_node(&node, &again));
        /* and so it is from the cursor before it */
        uint64_t from = before;
        HOLDS(bpk_tree_next(walk->pack, folder, &from, file_again, &again));
        HOLDS(same_node(&node, &again) && from == cursor);
        HOLDS(strcmp(file, file_again) == 0);
        HOLDS(cursor > before);
        before = cursor;
        note_path(walk, file, &node);
        if (node.kind == BPK_TREE_FOLDER) {
            walk_into(walk, folder, file, &node);
            continue;
        }
        HOLDS(node.segments == folder->segments);
        check_link(walk, file, &node);
        (node.kind == BPK_TREE_TENSOR ? walk->tensors : walk->sidecars)[node.tensor]++;
    }
    HOLDS(folder->segments == 0 || entries > 0);                     /* no folder is empty */
    HOLDS(!bpk_tree_next(walk->pack, folder, &cursor, file, &node)); /* the end stays */
}

/* By the contract alone: at most 64 segments, each at most 250 bytes as a file name. */
static bool belongs_in_tree(struct bpk_str name) {
    unsigned segments = 0;
    size_t start = 0;
    for (size_t i = 0; i <= name.len; i++) {
        if (i < name.len && name.bytes[i] != '.')
            continue;
        char ignored[BPK_FILE_NAME_BUF];
        if (bpk_name_encode((struct bpk_str){name.bytes + start, i - start}, ignored) == 0)
            return false;
        segments++;
        start = i + 1;
    }
    return segments <= 64;
}

/* Walks all, and checks that each tensor that belongs there was met once. */
static void walk_pack(const struct packspec *spec, struct walk *walk) {
    struct bpk_pack *pack = spec_open(spec);
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    memset(walk, 0, sizeof(*walk));
    walk->pack = pack;
    walk->tensors = calloc(info.tensors + 1, sizeof(walk->tensors[0]));
    walk->sidecars = calloc(info.tensors + 1, sizeof(walk->sidecars[0]));
    ck_assert(walk->tensors && walk->sidecars);
    walk_folder(walk, &root);
    for (uint32_t i = 0; i < info.tensors; i++) {
        uint32_t expected = belongs_in_tree(bpk_pack_tensor_name(pack, i));
        ck_assert_uint_eq(walk->tensors[i], expected);
        ck_assert_uint_eq(walk->sidecars[i], expected);
    }
    free(walk->tensors);
    free(walk->sidecars);
    bpk_pack_unref(pack);
}

static struct walk walk; /* too big for a stack */

/* ---- listings -------------------------------------------------------------------------------- */

static const struct {
    const char *names[6];
    const char *listing;
} listings[] = {
    {{NULL}, ""},
    {{"a"}, "a\na.json\n"},
    {{"a.b"}, "a/\na/b\na/b.json\n"},
    {{"conv1.weight", "conv1.bias", "fc.weight"},
     "conv1/\nconv1/bias\nconv1/bias.json\nconv1/weight\nconv1/weight.json\n"
     "fc/\nfc/weight\nfc/weight.json\n"},
    /* LoRA: a tensor that is a folder too */
    {{"x.weight", "x.weight.lora.a"},
     "x/\nx/weight/\nx/weight/@\nx/weight/@.json\nx/weight/lora/\nx/weight/lora/a\n"
     "x/weight/lora/a.json\n"},
    /* siblings that sort between a name and its folder */
    {{"a", "a-b", "a.b"}, "a-b\na-b.json\na/\na/@\na/@.json\na/b\na/b.json\n"},
    {{"a", "a+", "a-b.c", "a.b", "a/c"},
     "a+\na+.json\na-b/\na-b/c\na-b/c.json\na/\na/@\na/@.json\na/b\na/b.json\na%2Fc\n"
     "a%2Fc.json\n"},
    {{"ab", "ab.c", "a.b", "abc"},
     "a/\na/b\na/b.json\nab/\nab/@\nab/@.json\nab/c\nab/c.json\n"
     "abc\nabc.json\n"},
    /* "@" is taken */
    {{"@", "@.@", "a.@", "@@"},
     "%40/\n%40/@\n%40/@.json\n%40/%40\n%40/%40.json\n@@\n@@.json\na/\na/%40\na/%40.json\n"},
    /* empty segments */
    {{""}, "%\n%.json\n"},
    {{"."}, "%/\n%/%\n%/%.json\n"},
    {{"", "."}, "%/\n%/@\n%/@.json\n%/%\n%/%.json\n"},
    {{"a..b", "a.", ".a"}, "%/\n%/a\n%/a.json\na/\na/%/\na/%/@\na/%/@.json\na/%/b\na/%/b.json\n"},
    {{"a", "a.", "a.."}, "a/\na/@\na/@.json\na/%/\na/%/@\na/%/@.json\na/%/%\na/%/%.json\n"},
    /* each segment is encoded by itself */
    {{"x~.y~", "w.json", "p%.q/r", "t.\x01"},
     "p%25/\np%25/q%2Fr\np%25/q%2Fr.json\nt/\nt/%01\nt/%01.json\nw/\nw/json\nw/json.json\n"
     "x%7E/\nx%7E/y%7E\nx%7E/y%7E.json\n"},
};

START_TEST(small_trees) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < 6 && listings[_i].names[i]; i++)
        spec_u8(&spec, listings[_i].names[i], 1);
    walk_pack(&spec, &walk);
    ck_assert_str_eq(walk.listing, listings[_i].listing);
    spec_clear(&spec);
}

START_TEST(what_is_not_found) {
    static const char *const missing[] = {
        "",    "@",    "@.json", "%",      "%40", "a-b.json.json", "a.json",    "a.b",
        ".",   "..",   ".json",  "%.json", "%61", "a%2D",          "%2E",       "%zz",
        "50%", "a-b%", "b",      "A",      "a-B", "a%2Eb",         "x.json",    "x%2fy",
        "x/y", "\xff", "\xe2",   "a\xf0",  "%E2", "%C3%A9",        "a-b.json/",
    };
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    static const char *const names[] = {"a", "a-b", "a.b", "x.y", "x/y", "é"};
    for (int i = 0; i < ROWS(names); i++)
        spec_u8(&spec, names[i], 1);
    struct bpk_pack *pack = spec_open(&spec);
    struct bpk_tree_node node = {BPK_TREE_FOLDER, 77, 77};
    for (int i = 0; i < ROWS(missing); i++)
        ck_assert_msg(bpk_tree_find(pack, &root, str(missing[i]), &node) == -ENOENT, "%s",
                      missing[i]);
    ck_assert_uint_eq(node.tensor, 77);
    char big[300];
    memset(big, 'a', sizeof(big));
    for (size_t len = 240; len < sizeof(big); len++)
        ck_assert_int_eq(bpk_tree_find(pack, &root, (struct bpk_str){big, len}, &node), -ENOENT);
    ck_assert_int_eq(bpk_tree_find(pack, &root, str("é.json"), &node), 0);
    ck_assert_int_eq(node.kind, BPK_TREE_SIDECAR);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* A name that is not in the tree makes no folder, and its prefix stays a plain link. */
START_TEST(what_is_not_in_the_tree) {
    char name[1000];
    struct packspec spec;
    for (unsigned segments = 63; segments <= 66; segments++) {
        for (int empty = 0; empty < 2; empty++) {
            size_t len = 0;
            for (unsigned i = 0; i < segments; i++) {
                if (!empty)
                    name[len++] = 's';
                if (i + 1 < segments)
                    name[len++] = '.';
            }
            spec_init(&spec, BPK_LAYOUT_ALIGNED);
            spec_u8_n(&spec, (struct bpk_str){name, len}, 1);
            spec_u8(&spec, "other", 1);
            walk_pack(&spec, &walk);
            ck_assert_int_eq(strstr(walk.listing, empty ? "%/" : "s/") != NULL, segments <= 64);
            spec_clear(&spec);
        }
    }
    /* segments of 250 and 251 bytes, at either place; an escape counts for three */
    for (size_t long_len = 250; long_len <= 251; long_len++) {
        for (int last = 0; last < 2; last++) {
            for (int escape = 0; escape < 2; escape++) {
                size_t len = 0;
                size_t n = long_len - (escape ? 2 : 0);
                if (last) {
                    memcpy(name, "a.", 2);
                    len = 2;
                }
                memset(name + len, 'n', n);
                if (escape)
                    name[len + 1] = '%';
                len += n;
                if (!last) {
                    memcpy(name + len, ".a", 2);
                    len += 2;
                }
                spec_init(&spec, BPK_LAYOUT_ALIGNED);
                spec_u8_n(&spec, (struct bpk_str){name, len}, 1);
                spec_u8(&spec, "a", 1);
                walk_pack(&spec, &walk);
                const char *plain = "a\na.json\n";
                ck_assert_int_eq(strcmp(walk.listing, plain) == 0, long_len > 250);
                spec_clear(&spec);
            }
        }
    }
}

/* A chain of names of 1 to 66 segments, each the folder of the next. */
START_TEST(every_depth) {
    struct packspec spec;
    char name[200] = "s";
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (unsigned segments = 1; segments <= 66; segments++) {
        spec_u8(&spec, name, 1);
        strcat(name, ".s");
    }
    walk_pack(&spec, &walk);
    struct bpk_pack *pack = spec_open(&spec);
    struct bpk_tree_node node = root;
    for (unsigned segments = 1; segments < 64; segments++) {
        ck_assert_int_eq(bpk_tree_find(pack, &node, str("s"), &node), 0);
        ck_assert_int_eq(node.kind, BPK_TREE_FOLDER);
    }
    ck_assert_int_eq(bpk_tree_find(pack, &node, str("s"), &node), 0);
    ck_assert_int_eq(node.kind, BPK_TREE_TENSOR); /* the 64th; deeper ones are not there */
    ck_assert_uint_eq(node.tensor, 63);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* ---- any set of names ------------------------------------------------------------------------ */

START_TEST(random_trees) {
    static const char *const pieces[] = {"a", "b", ".", ".", ".",  "-",     "@",
                                         "~", "%", "/", "é", "ab", ".json", "\x01"};
    uint64_t state = (uint64_t)_i;
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < 150; i++) {
        char name[400] = "";
        unsigned count = (unsigned)(suite_random(&state) % (i % 20 == 0 ? 90 : 7));
        for (unsigned k = 0; k < count; k++)
            strcat(name, pieces[suite_random(&state) % (size_t)ROWS(pieces)]);
        if (i % 30 == 7) {
            size_t len = strlen(name);
            memset(name + len, 'l', 251);
            name[len + 251] = '\0';
        }
        spec_u8(&spec, name, 0);
    }
    walk_pack(&spec, &walk);
    spec_clear(&spec);
}

/* Wide folders: the search for the end of a run doubles its steps. */
START_TEST(runs_of_every_length) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (unsigned run = 1; run < 40; run++)
        for (unsigned i = 0; i < run; i++) {
            char name[32];
            snprintf(name, sizeof(name), "f%02u.%03u", run, i);
            spec_u8(&spec, name, 0);
        }
    walk_pack(&spec, &walk);
    struct bpk_pack *pack = spec_open(&spec);
    uint64_t cursor = 0;
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tree_node node;
    for (unsigned run = 1; run < 40; run++) {
        char expected[8];
        snprintf(expected, sizeof(expected), "f%02u", run);
        ck_assert(bpk_tree_next(pack, &root, &cursor, file, &node));
        ck_assert_str_eq(file, expected);
        ck_assert_uint_eq(node.tensor, run * (run - 1) / 2);
    }
    ck_assert(!bpk_tree_next(pack, &root, &cursor, file, &node));
    cursor = UINT64_MAX - 1; /* a cursor of nowhere ends the walk */
    ck_assert(!bpk_tree_next(pack, &root, &cursor, file, &node));
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

int main(void) {
    Suite *suite = suite_create("tree");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, small_trees, 0, ROWS(listings));
    tcase_add_test(tc, what_is_not_found);
    tcase_add_test(tc, what_is_not_in_the_tree);
    tcase_add_test(tc, every_depth);
    tcase_add_loop_test(tc, random_trees, 0, 30);
    tcase_add_test(tc, runs_of_every_length);
    return suite_run(suite);
}
