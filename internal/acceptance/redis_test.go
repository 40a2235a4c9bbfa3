//go:build unix

package acceptance

import (
	"context"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// onRedis reports whether a test is one of those that TestRE1 and TestOnRedis run.
func onRedis(t *testing.T) bool {
	return strings.HasPrefix(t.Name(), "TestRE1/") || strings.HasPrefix(t.Name(), "TestOnRedis/")
}

// besideOthers lets a test run in parallel, except at night, when it measures.
func besideOthers(t *testing.T) {
	if !testrun.Night() {
		t.Parallel()
	}
}

// onlyPostgres skips a part of a test on Redis, which lacks the feature.
func onlyPostgres(t *testing.T, what string) {
	t.Helper()
	if onRedis(t) {
		t.Skip("the Redis engine has no " + what)
	}
}

func startRedis(t *testing.T, further ...string) *devbroker.Redis {
	t.Helper()
	// Redis answers only after writing to disk, so that nothing may be lost.
	r, err := devbroker.StartRedis(context.WithoutCancel(t.Context()), t.TempDir(), append([]string{"--appendfsync", "always"}, further...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// isRedis reports whether a URL is that of a Redis.
func isRedis(url string) bool { return strings.HasPrefix(url, "redis://") }

// openStore opens the engine for a URL. options are those of PostgreSQL.
func openStore(ctx context.Context, url string, options ...postgres.Option) (posthaste.Store, error) {
	switch {
	case isRedis(url):
		return redis.Open(ctx, url)
	case strings.HasPrefix(url, "nats://"):
		return nats.Open(ctx, url)
	}
	return postgres.Open(ctx, url, options...)
}

// redis reports whether the stage uses a Redis.
func (s *stage) redis() bool { return isRedis(s.url) }

// keys returns a client of the stage's Redis, to inspect it.
func (s *stage) keys() *goredis.Client {
	s.Helper()
	if s.look == nil {
		o, err := goredis.ParseURL(s.url)
		s.must(err)
		s.look = goredis.NewClient(o)
		s.Cleanup(func() { _ = s.look.Close() })
	}
	return s.look
}

// key returns one of a queue's keys there.
func key(queue, what string) string { return "{posthaste:" + queue + "}:" + what }

// named returns the stage's URL for connections that can be identified by that name, and the
// means to do so, because all connections of a Redis look the same.
func (s *stage) named(name string) (url, by string) {
	if s.redis() {
		return s.url, ""
	}
	return s.url + "&application_name=" + name, name
}

// RE1: the guarantees of delivery, of losing nothing and of rare duplicates also hold on
// Redis, except those about SQL, transactions or truncation.
func TestRE1(t *testing.T) {
	besideOthers(t)
	onEachChange := []string{"DS1", "DS5_MaxAttempts", "DS6", "DS8", "LP4", "LP5", "LP7", "DU1_Receivers", "DU2", "DU4", "DU5_Withdraws", "FT3"}
	for name, test := range map[string]func(*testing.T){
		"DS1":               TestDS1_SenderKilled,
		"DS3_Order":         TestDS3_FirstInFirstOut,
		"DS3_Batch":         TestDS3_BatchOfTwoOutOfThree,
		"DS3_Woken":         TestDS3_WorkerIsWoken,
		"DS3_HTTP":          TestDS3_HTTPReceiveWaits,
		"DS5_MaxAttempts":   TestDS5_MaxAttempts,
		"DS5_Permanent":     TestDS5_PermanentErrorRunsOnce,
		"DS5_Batch":         TestDS5_AttemptsPerMessageOfABatch,
		"DS6":               TestDS6_AtMostOnce,
		"DS6_Ordered":       TestDS6_OrderedIsRefused,
		"DS7":               TestDS7_SettledIsSettled,
		"DS8":               TestDS8_EachSubscriptionGetsEachMessageOnce,
		"DS8_OneWorker":     TestSubscriptionsOfOneQueueInOneWorker,
		"DS9":               TestDS9_ArrivesAsSent,
		"DS9_AboveTheLimit": TestDS9_AboveTheLimit,
		"DS10":              TestDS10_DueBesideBacklog,
		"LP1":               TestLP1_WorkerComesLater,
		"LP2":               TestLP2_WithoutWakeUps,
		"LP3":               TestLP3_WorkersKilled,
		"LP4":               TestLP4_StoreKilled,
		"LP5":               TestLP5_NetworkFaults,
		"LP5_HalfOpen":      TestLP5_HalfOpenForGood,
		"LP7":               TestLP7_PoisonKillsTheProcess,
		"LP8":               TestLP8_LongBacklog,
		"DU1_Workers":       TestDU1_Workers,
		"DU1_Receivers":     TestDU1_ManyReceivers,
		"DU2":               TestDU2_Stopped,
		"DU3":               TestDU3_RescuersTogether,
		"DU4":               TestDU4_KilledBeforeTheSettle,
		"DU5_Withdraws":     TestDU5_LateAckWithdraws,
		"DU5_Refused":       TestDU5_LateAckIsRefused,
		"DU5_Clocks":        TestDU5_ClientsClocksDecideNothing,
		"FT3":               TestFT3_NothingStartsAfterItsLease,
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(onEachChange, name) {
				testrun.Nightly(t, "the engine's suite and the tests of package redis run on each change")
			}
			test(t)
		})
	}
}

// Features around the engine work on Redis: traces, metrics, relays and sources, mails, killed
// and replaced processes, schedules.
func TestOnRedis(t *testing.T) {
	besideOthers(t)
	onEachChange := []string{"TR2", "HA1", "EM1", "JB5", "Concurrency", "Woken", "Dead"}
	for name, test := range map[string]func(*testing.T){
		"TR1_Go":      TestTR1_OneTraceInGo,
		"TR1_Rescue":  TestTR1_OneTraceThroughARescue,
		"TR1_Batches": TestTR1_BatchesKeepTheirTraces,
		"TR1_HTTP":    TestTR1_OneTraceOverHTTP,
		"TR1_Broker":  TestTR1_OneTraceThroughTheBroker,
		"TR2":         TestTR2_EveryOutcomeIsSeen,
		"TR3":         TestTR3_WholeStory,
		"OR3":         TestOR3_RelaysShare,
		"OR5":         TestOR5_CutBeforeTheConfirm,
		"OR6":         TestOR6_OrderAtTheBroker,
		"NP1":         TestNP1_DueMessagesLeaveInChunks,
		"NP3":         TestNP3_OneOfAChunkFails,
		"NP5":         TestNP5_BrokerRestarted,
		"HA1":         TestHA1_OneIsKilled,
		"HA2":         TestHA2_RollingReplacement,
		"EM1":         TestEM1_ArrivesAsSent,
		"JB5":         TestJB5_KilledAtAStep,
		"EM2_Fails":   TestEM2_FailsTwiceThenAccepts,
		"EM2_Refused": TestEM2_RefusedIsNotRetried,
		"EM2_Hangs":   TestEM2_HangingServerIsCut,
		"EM2_Each":    TestEM2_RecipientsByThemselves,
		"Concurrency": TestConcurrencyOverWorkers,
		"DB3":         TestDB3_PagesAreFast,
		"Operators":   TestOperatorsOverHTTP,
		"KeyRates":    TestKeyRatesHold,
		"Woken":       TestWaitingReceiversAreWokenByLimits,
		"Order":       TestOrderedQueue_WorkersComeAndGo,
		"Dead":        TestOrderedQueue_DeadStopsItsKey,
		"OneKey":      TestOrderedQueue_OneKeyWithManyMessages,
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(onEachChange, name) {
				testrun.Nightly(t, "the engine's suite and the tests of package redis run on each change")
			}
			test(t)
		})
	}
}
