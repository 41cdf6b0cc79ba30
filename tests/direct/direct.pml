/* The signals of a direct exchange, as src/exchange/direct.c and src/group/signals.c have them, for
 * spin. run.sh checks it with 2 and 3 ranks, and that it fails without any one of the rules, whose
 * names are those of direct.c. Memory is sequentially consistent here: the orders of stores are for
 * the thread sanitizer.
 *
 * A place holds the number of the exchange whose partial is in it, or HALF while it is written.
 * Reading another number is what must not happen. Signals count modulo 8, so they wrap. Exchanges
 * 1, 6 and 7 go in two shots, the others in one.
 *
 *     -DRANKS=2|3    -DNO_RULE    leave a rule out
 *     -DDEAD         the last rank may stop anywhere, and waits may then expire
 *     -DLATE         waits may expire at any time, since a rank may be late
 *     -DFAULT        a rank has a fault in exchange 6, and all find it out */
#ifndef RANKS
#define RANKS 2
#endif
#define STEPS 7
#define MODULUS 8
#define START 5
#define HALF 255

byte ready[RANKS], merged[RANKS]; /* the signals */
bool fault[2 * RANKS];            /* that goes with `ready`: in an even exchange, in an odd one */
byte place[2 * RANKS];            /* the slab: two sets */
byte room[RANKS];                 /* and the merged parts */
bool dead, broken;
byte done;

#define TWO_SHOTS(step) ((step) == 1 || (step) == 6 || (step) == 7)

#ifdef NO_WRAP /* counts are compared as they are */
#define REACHED(word, epoch) ((word) >= (epoch))
#else
#define REACHED(word, epoch) (((word) + MODULUS - (epoch)) % MODULUS < MODULUS / 2)
#endif

#ifdef NO_TURNS
#define SET(epoch) 0
#else
#define SET(epoch) ((epoch) % 2)
#endif

/* A wait ends because it came, or the group is broken; or it expires, which breaks the group. */
#if defined(LATE)
#define MAY_EXPIRE true
#else
#define MAY_EXPIRE dead
#endif
#define AWAIT(word)                                                                                \
    if                                                                                             \
    :: REACHED(word, epoch)                                                                        \
    :: broken && !REACHED(word, epoch) -> goto failed                                              \
    :: MAY_EXPIRE && !REACHED(word, epoch) -> broken = true; goto failed                           \
    fi

#ifdef DEAD
#define MAY_DIE                                                                                    \
    if                                                                                             \
    :: me == RANKS - 1 -> dead = true; goto stopped                                                \
    :: true                                                                                        \
    fi
#else
#define MAY_DIE skip
#endif

proctype rank(byte me)
{
    byte step = 1, epoch = START, i, knows;
    do
    :: step > STEPS -> break
    :: step <= STEPS ->
        epoch = (epoch + 1) % MODULUS;
        MAY_DIE;
        /* attend() writes the partial into its place */
        place[SET(epoch) * RANKS + me] = HALF;
#ifdef NO_PUBLISH
        ready[me] = epoch;
#endif
        place[SET(epoch) * RANKS + me] = step;
        MAY_DIE;
        /* ta_signal_ready() */
#ifndef NO_FOLLOW
        merged[me] = (epoch + MODULUS - 1) % MODULUS;
#endif
#ifdef FAULT
        fault[SET(epoch) * RANKS + me] = (step == 6 && me == RANKS - 1);
#endif
        ready[me] = epoch;
        MAY_DIE;
        /* meet() */
        i = 0;
        do
        :: i == RANKS -> break
        :: i < RANKS ->
#ifdef NO_EVERYBODY
            if
            :: me == 0 -> AWAIT(ready[i])
            :: me != 0 -> skip
            fi;
#elif !defined(NO_ARRIVE)
            AWAIT(ready[i]);
#endif
            i++
        od;
        knows = 0;
        i = 0;
        do
        :: i == RANKS -> break
        :: i < RANKS -> knows = knows || fault[SET(epoch) * RANKS + i]; i++
        od;
#ifdef NO_FAULTS /* one rank does not mind */
        if
        :: me == 0 -> knows = 0
        :: me != 0
        fi;
#endif
        if
        :: knows -> skip /* FAULTS: it neither merges nor waits */
        :: !knows ->
#ifdef NO_EVERYBODY
            if
            :: me != 0 -> goto next /* it needs nothing of the others */
            :: me == 0
            fi;
#endif
            i = 0;
            do /* run_once() and finish(), or the merge of run_twice(), read all partials */
            :: i == RANKS -> break
            :: i < RANKS -> assert(fault[SET(epoch) * RANKS + i] ||
                                   place[SET(epoch) * RANKS + i] == step); i++
            od;
            if
            :: TWO_SHOTS(step) ->
                room[me] = HALF;
                room[me] = step;
                merged[me] = epoch; /* ta_signal_merged() */
                MAY_DIE;
                i = 0;
                do
                :: i == RANKS -> break
                :: i < RANKS ->
#ifndef NO_MERGED
                    AWAIT(merged[i]);
#endif
                    assert(room[i] == step);
                    i++
                od
            :: !TWO_SHOTS(step) -> skip
            fi
        fi;
#ifdef NO_ARRIVE
        i = 0;
        do /* too late */
        :: i == RANKS -> break
        :: i < RANKS -> AWAIT(ready[i]); i++
        od;
#endif
#ifdef NO_EVERYBODY
next:
#endif
        step++
    od;
    goto stopped;
failed:
    assert(broken); /* with a reason, never by mistake */
stopped:
    done++
}

init
{
    byte i = 0;
    atomic {
        do
        :: i == RANKS -> break
        :: i < RANKS ->
            ready[i] = START;
            merged[i] = START;
            run rank(i);
            i++
        od
    }
    done == RANKS /* nobody waits for ever */
}
