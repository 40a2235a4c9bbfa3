//go:build unix

package server

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/redis"
)

// onStores are the tests that call a store and pass on each engine.
var onStores = map[string]func(*testing.T){
	"AtMostOnceIsNotHandedBack":           TestAtMostOnceIsNotHandedBack,
	"ScopesOfEveryRoute":                  TestScopesOfEveryRoute,
	"UnauthorizedStoresNothing":           TestUnauthorizedStoresNothing,
	"DeadLettersByFilter":                 TestDeadLettersByFilter,
	"IdempotencyKey":                      TestIdempotencyKey,
	"IdempotencyKeyOfAMail":               TestIdempotencyKeyOfAMail,
	"WaitingReceiversAreLimited":          TestWaitingReceiversAreLimited,
	"Payloads":                            TestDS9PayloadsOverHTTP,
	"BadInputStoresNothing":               TestBadInputStoresNothing,
	"TooLargeBodies":                      TestTooLargeBodies,
	"PutQueueTwice":                       TestPutQueueTwice,
	"FaultsOfAMail":                       TestFaultsOfAMailAreAllTold,
	"ReceiveInOrder":                      TestDS3ReceiveInOrderOverHTTP,
	"ReceiveWaits":                        TestDS3ReceiveWaitsUntilItsWaitIsOver,
	"ReceiveIsWoken":                      TestDS3ReceiveIsWokenByAMessage,
	"ReceiversShareClaims":                TestReceiversShareClaims,
	"ReceiversOfManySizes":                TestReceiversOfManySizes,
	"ReceiverThatLeaves":                  TestReceiverThatLeavesStrandsNothing,
	"ReceiverThatLeavesWhileNothingComes": TestReceiverThatLeavesWhileNothingComes,
	"AnswerThatIsNotTaken":                TestAnswerThatIsNotTakenIsHandedBack,
	"HandingBack":                         TestHandingBackIsTriedAgain,
	"WhatFallsDue":                        TestReceiveFindsWhatFallsDue,
	"AnswerGivenWhileLeaving":             TestAnswerGivenWhileLeavingIsHandedBack,
	"ReceiversComeAndGo":                  TestReceiversComeAndGo,
	"Schedules":                           TestSchedules,
	"StoredTokens":                        TestStoredTokensOpenAndCloseTheDoor,
	"RequireTokenWithoutAny":              TestRequireTokenWithoutAny,
	"TokensLimitedToQueues":               TestTokensLimitedToQueues,
	"LimitedTokensAndEveryRoute":          TestLimitedTokensAndEveryRoute,
	"WhatIsClaimedMeanwhile":              TestLimitedTokensAndWhatIsClaimedMeanwhile,
	"WaitingEndsWithTheToken":             TestWaitingEndsWithTheToken,
	"AnApplicationReadsWhatItSent":        TestAnApplicationReadsWhatItSent,
	"SchedulesRunNow":                     TestSchedulesRunNow,
}

// onRedisOnly are tests that search, pause a kind, or look at a settled message of a queue without a
// retention, which the engine on NATS cannot do.
var onRedisOnly = map[string]func(*testing.T){
	"SettlingTwice":         TestDS7SettlingTwiceOverHTTP,
	"Emails":                TestEmails,
	"EveryOperation":        TestOpenAPIMatchesEveryOperation,
	"ErrorsToAllWhoWait":    TestReceiveTellsErrorsToAllWhoWait,
	"PayloadsAreHidden":     TestPayloadsAreHidden,
	"ReplayedMessagesSayBy": TestReplayedMessagesSayBy,
	"ListsArePaged":         TestJB7_ListsArePagedAndStable,
}

// runOn runs tests on the engine that open opens.
func runOn(t *testing.T, open openEngine, lists ...map[string]func(*testing.T)) {
	t.Helper()
	otherEngines[t.Name()] = open
	for _, tests := range lists {
		for name, test := range tests {
			t.Run(name, test)
		}
	}
}

// The API behaves on NATS as in memory.
func TestOnNATS(t *testing.T) {
	s, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	runOn(t, func(t *testing.T, prefix string) (posthaste.Store, error) {
		return nats.Open(t.Context(), s.URL(), nats.WithPrefix(prefix))
	}, onStores)
}

// The API behaves on Redis as in memory.
func TestOnRedis(t *testing.T) {
	s, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	runOn(t, func(t *testing.T, prefix string) (posthaste.Store, error) {
		return redis.Open(t.Context(), s.URL(), redis.WithPrefix(prefix))
	}, onStores, onRedisOnly)
}
