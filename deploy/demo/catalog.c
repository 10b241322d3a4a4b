/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog: an inverted index, word -> (product, how often), ranked by BM25 (Robertson, Zaragoza
 * 2009): a rare word counts more, a repeated one counts less each time, long texts count less.
 */
#include "deploy/demo/catalog.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"

enum { VOCABULARY = 1200, DESCRIPTION_WORDS = 40, WORD_MAX = 32, ARENA_BYTES = 16 << 20 };

struct posting {
    uint32_t product, count;
};
struct postings {
    struct str word;
    VEC(struct posting) list;
};

/* ---- the goods ------------------------------------------------------------------------------- */

/* Words from syllables; a small number is a common word (Zipf's law, roughly). */
static size_t random_rank(struct prng *p, size_t n)
{
    return (size_t)(pow((double)n, prng_unit(p)) - 1);
}

static void make_words(struct catalog *c, struct prng *p)
{
    static const char *const syllables[] = { "ka", "lo",  "min", "ter", "ve",  "sor", "pa",
                                             "ri", "den", "mo",  "qui", "zan", "el",  "fur",
                                             "ta", "bri", "nox", "u",   "gel", "shi" };

    for (int i = 0; i < VOCABULARY; i++) {
        char word[WORD_MAX];
        size_t len = 0;

        for (uint64_t n = 2 + prng_below(p, 3); n > 0; n--) {
            const char *s = syllables[prng_below(p, ARRAY_LEN(syllables))];

            memcpy(word + len, s, strlen(s));
            len += strlen(s);
        }
        vec_push(&c->words, arena_strdup(c->texts, str_n(word, len)));
    }
}

static struct str make_text(struct catalog *c, struct prng *p, size_t words)
{
    struct str s;
    struct buf b;

    buf_init(&b, MIB);
    for (size_t i = 0; i < words; i++) {
        if (i)
            (void)buf_add_str(&b, i % 9 ? STR(" ") : STR(". "));
        (void)buf_add_str(&b, c->words.ptr[random_rank(p, VOCABULARY)]);
    }
    s = arena_strdup(c->texts, buf_str(&b));
    buf_deinit(&b);
    CHECK(s.ptr);
    return s;
}

static void make_product(struct catalog *c, struct prng *p, struct product *to)
{
    float norm = 0;

    to->name = make_text(c, p, 2 + prng_below(p, 2));
    to->description = make_text(c, p, DESCRIPTION_WORDS / 2 + prng_below(p, DESCRIPTION_WORDS));
    to->price_cents = (uint32_t)(99 + 100 * random_rank(p, 500));
    for (size_t i = 0; i < RELATED; i++)
        to->related[i] = (uint32_t)random_rank(p, PRODUCTS);
    for (size_t i = 0; i < TASTES; i++) {
        to->taste[i] = (float)(prng_unit(p) - 0.5);
        norm += to->taste[i] * to->taste[i];
    }
    for (size_t i = 0; i < TASTES; i++)
        to->taste[i] /= sqrtf(norm);
}

/* ---- the index ------------------------------------------------------------------------------- */

/* Lower-cased words of letters and digits; false at the end. */
NOINLINE static bool next_word(struct str *rest, char word[WORD_MAX], struct str *ret)
{
    size_t i = 0, len = 0;

    for (; i < rest->len; i++) {
        char ch = rest->ptr[i];

        if (ch >= 'A' && ch <= 'Z')
            ch = (char)(ch - 'A' + 'a');
        if ((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9')) {
            if (len < WORD_MAX)
                word[len++] = ch;
        } else if (len) {
            break;
        }
    }
    *rest = str_sub(*rest, i, rest->len);
    *ret = str_n(word, len);
    return len > 0;
}

static struct postings *postings_of(struct catalog *c, struct str word)
{
    struct postings *l = map_str_get(c->index, word);

    if (!l) {
        l = XNEW(struct postings);
        l->word = str_n(xmemdup(word.ptr, word.len), word.len);
        vec_push(&c->lists, l);
        (void)map_str_put(c->index, l->word, l);
    }
    return l;
}

NOINLINE static void index_text(struct catalog *c, uint32_t product, struct str text)
{
    char bytes[WORD_MAX];
    struct str word;

    while (next_word(&text, bytes, &word)) {
        struct postings *l = postings_of(c, word);

        if (l->list.len == 0 || l->list.ptr[l->list.len - 1].product != product)
            vec_push(&l->list, ((struct posting){ product, 0 }));
        l->list.ptr[l->list.len - 1].count++;
        c->words_total++;
    }
}

static void drop_index(struct catalog *c)
{
    map_str_free(c->index);
    c->index = NULL;
    vec_for (i, &c->lists) {
        xfree((void *)(uintptr_t)c->lists.ptr[i]->word.ptr);
        vec_free(&c->lists.ptr[i]->list);
        xfree(c->lists.ptr[i]);
    }
    c->lists.len = 0;
}

void catalog_reindex(struct catalog *c)
{
    drop_index(c);
    c->index = map_str_new();
    c->words_total = 0;
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        index_text(c, i, c->products[i].name);
        index_text(c, i, c->products[i].description);
    }
}

/* ---- searching ------------------------------------------------------------------------------- */

NOINLINE static void score_postings(struct catalog *c, const struct postings *l)
{
    float idf =
        logf(1 + ((float)PRODUCTS - (float)l->list.len + 0.5f) / ((float)l->list.len + 0.5f));
    float average = (float)c->words_total / PRODUCTS;

    vec_for (i, &l->list) {
        const struct posting *p = &l->list.ptr[i];
        float length = (float)c->products[p->product].description.len / 7;
        float count = (float)p->count;

        c->scores[p->product] +=
            idf * count * 2.2f / (count + 1.2f * (0.25f + 0.75f * length / average));
    }
}

/* Keeps the best HITS_MAX in a heap whose root is the worst of them; clears the scores. */
NOINLINE static size_t take_best(struct catalog *c, struct hit heap[HITS_MAX])
{
    size_t n = 0;

    for (uint32_t i = 0; i < PRODUCTS; i++) {
        struct hit h = { i, c->scores[i] };
        size_t at = 0;

        c->scores[i] = 0;
        if (h.score <= 0 || (n == HITS_MAX && h.score <= heap[0].score))
            continue;
        if (n < HITS_MAX) {
            for (at = n++; at > 0 && heap[(at - 1) / 2].score > h.score; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
        } else {
            for (size_t child; (child = 2 * at + 1) < n; at = child) {
                if (child + 1 < n && heap[child + 1].score < heap[child].score)
                    child++;
                if (heap[child].score >= h.score)
                    break;
                heap[at] = heap[child];
            }
        }
        heap[at] = h;
    }
    return n;
}

static int by_score(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;

    return (x->score < y->score) - (x->score > y->score);
}

size_t catalog_search(struct catalog *c, struct str query, struct hit ret[HITS_MAX])
{
    char bytes[WORD_MAX];
    struct str word;
    size_t n;

    while (next_word(&query, bytes, &word)) {
        const struct postings *l = map_str_get(c->index, word);

        if (l)
            score_postings(c, l);
    }
    n = take_best(c, ret);
    qsort(ret, n, sizeof(ret[0]), by_score);
    return n;
}

void catalog_random_query(const struct catalog *c, struct prng *p, struct buf *out)
{
    for (uint64_t n = 2 + prng_below(p, 3); n > 0; n--) {
        (void)buf_add_str(out, c->words.ptr[random_rank(p, VOCABULARY)]);
        (void)buf_add_c(out, ' ');
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

struct catalog *catalog_new(uint64_t seed)
{
    struct catalog *c = XNEW(struct catalog);
    struct prng p;

    prng_init(&p, seed);
    c->texts = arena_new(ARENA_BYTES);
    c->products = XNEW_ARRAY(struct product, PRODUCTS);
    c->scores = XNEW_ARRAY(float, PRODUCTS);
    make_words(c, &p);
    for (size_t i = 0; i < PRODUCTS; i++)
        make_product(c, &p, &c->products[i]);
    catalog_reindex(c);
    return c;
}

void catalog_free(struct catalog *c)
{
    if (!c)
        return;
    drop_index(c);
    vec_free(&c->lists);
    vec_free(&c->words);
    xfree(c->scores);
    xfree(c->products);
    arena_free(c->texts);
    xfree(c);
}
