/* rules: what a name says. */
#include "edit/rules.h"

#include "packbuild.h"
#include "suite.h"

#include <string.h>

static const struct {
    const char *name;
    bool scratch, backup, sidecar;
} names[] = {
    {"weight", false, false, false},     {"4913", true, false, false},
    {"49130", false, false, false},      {"sedAb3dEf", true, false, false},
    {"sed123456", true, false, false},   {"sed12345", false, false, false},
    {"sed1234567", false, false, false}, {"sed12345.", false, false, false},
    {"sed-12345", false, false, false},  {"sedation", false, false, false},
    {"sedative1", true, false, false}, /* looks like one */
    {".", true, false, false},           {".hidden", true, false, false},
    {".w.json.swp", true, false, false}, {"#w#", true, false, false},
    {".#w", true, false, false},         {"w~", true, false, false},
    {"~", true, false, false},           {"~w", false, false, false},
    {"w.bak", false, true, false},       {"w.orig", false, true, false},
    {"w.old", false, true, false},       {"w.rej", false, true, false},
    {".bak", true, false, false},        {"bak", false, false, false},
    {"w.bak.x", false, false, false},    {"w.BAK", false, false, false},
    {"w.json", false, false, true},      {"w.json.bak", false, true, false},
    {"w.bak.json", false, false, true},  {".json", true, false, false},
    {"json", false, false, false},       {"w.JSON", false, false, false},
    {"%2Ehidden", false, false, false},  {"%", false, false, false},
    {"%.json", false, false, true},      {"", false, false, false},
};

START_TEST(names_are_told_apart) {
    const char *name = names[_i].name;
    struct bpk_str stem = {NULL, 77};
    ck_assert_int_eq(bpk_rules_is_scratch(name), names[_i].scratch);
    ck_assert_int_eq(bpk_rules_is_backup(name), names[_i].backup);
    ck_assert_int_eq(bpk_rules_sidecar_stem(name, &stem), names[_i].sidecar);
    ck_assert_uint_eq(stem.len, names[_i].sidecar ? strlen(name) - 5 : 77);
    if (names[_i].sidecar)
        ck_assert_ptr_eq(stem.bytes, name);
}

static const struct {
    const char *file, *name; /* NULL: not as this program would spell it */
    size_t len;
} spellings[] = {
    {"weight", "weight", 6},
    {"%", "", 0},
    {"%25", "%", 1},
    {"a%2Fb", "a/b", 3},
    {"%00", "\0", 1},
    {"%2Ehidden", ".hidden", 7},
    {"x%7E", "x~", 2},
    {"a%2Ejson", "a.json", 6},
    {"\xc3\xa4", "\xc3\xa4", 2},
    {"a b", "a b", 3},
    {"", NULL, 0},
    {"50%", NULL, 0},
    {"%2f", NULL, 0},
    {"%61", NULL, 0},
    {"%2", NULL, 0},
    {"%G0", NULL, 0},
    {"a%2Eb", NULL, 0},
    {"%2Ejson", ".json", 5},
    {".hidden", NULL, 0},
    {"a\nb", NULL, 0},
    {"a%0Ab", "a\nb", 3},
    {"\xff", NULL, 0},
    {"\xc3", NULL, 0},
    {"%FF", NULL, 0},
    {"%C3%A4", NULL, 0},
    {"a~", NULL, 0},
};

START_TEST(spellings_are_one_to_one) {
    char out[256];
    size_t len = 77;
    bool right = bpk_rules_is_spelled_right(spellings[_i].file, out, &len);
    ck_assert_int_eq(right, spellings[_i].name != NULL);
    if (!right)
        return;
    ck_assert_uint_eq(len, spellings[_i].len);
    ck_assert_int_eq(memcmp(out, spellings[_i].name, len), 0);
}

START_TEST(names_of_250_bytes_are_the_longest) {
    char name[300];
    char out[300];
    size_t len;
    memset(name, 'n', sizeof(name));
    for (size_t i = 240; i < 256; i++) {
        name[i] = '\0';
        ck_assert_int_eq(bpk_rules_is_spelled_right(name, out, &len), i <= 250);
        name[i] = 'n';
    }
}

int main(void) {
    Suite *suite = suite_create("rules");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, names_are_told_apart, 0, ROWS(names));
    tcase_add_loop_test(tc, spellings_are_one_to_one, 0, ROWS(spellings));
    tcase_add_test(tc, names_of_250_bytes_are_the_longest);
    return suite_run(suite);
}
