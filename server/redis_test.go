//go:build unix

package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/redis"
)

var (
	redisURL      string // while TestOnRedis runs
	redisPrefixes atomic.Int64
)

func init() {
	inMemory := newEngine
	newEngine = func(t *testing.T) posthaste.Store {
		if !strings.HasPrefix(t.Name(), "TestOnRedis/") {
			return inMemory(t)
		}
		e, err := redis.Open(t.Context(), redisURL, redis.WithPrefix(fmt.Sprintf("test%d", redisPrefixes.Add(1))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
}

// The API behaves on Redis as in memory: these are the tests that call a store.
func TestOnRedis(t *testing.T) {
	s, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	redisURL = s.URL()
	for name, test := range map[string]func(*testing.T){
		"AtMostOnceIsNotHandedBack":           TestAtMostOnceIsNotHandedBack,
		"ScopesOfEveryRoute":                  TestScopesOfEveryRoute,
		"UnauthorizedStoresNothing":           TestUnauthorizedStoresNothing,
		"DeadLettersByFilter":                 TestDeadLettersByFilter,
		"SettlingTwice":                       TestDS7SettlingTwiceOverHTTP,
		"IdempotencyKey":                      TestIdempotencyKey,
		"IdempotencyKeyOfAMail":               TestIdempotencyKeyOfAMail,
		"WaitingReceiversAreLimited":          TestWaitingReceiversAreLimited,
		"Payloads":                            TestDS9PayloadsOverHTTP,
		"BadInputStoresNothing":               TestBadInputStoresNothing,
		"TooLargeBodies":                      TestTooLargeBodies,
		"PutQueueTwice":                       TestPutQueueTwice,
		"Emails":                              TestEmails,
		"FaultsOfAMail":                       TestFaultsOfAMailAreAllTold,
		"EveryOperation":                      TestOpenAPIMatchesEveryOperation,
		"ReceiveInOrder":                      TestDS3ReceiveInOrderOverHTTP,
		"ReceiveWaits":                        TestDS3ReceiveWaitsUntilItsWaitIsOver,
		"ReceiveIsWoken":                      TestDS3ReceiveIsWokenByAMessage,
		"ReceiversShareClaims":                TestReceiversShareClaims,
		"ReceiversOfManySizes":                TestReceiversOfManySizes,
		"ReceiverThatLeaves":                  TestReceiverThatLeavesStrandsNothing,
		"ReceiverThatLeavesWhileNothingComes": TestReceiverThatLeavesWhileNothingComes,
		"AnswerThatIsNotTaken":                TestAnswerThatIsNotTakenIsHandedBack,
		"HandingBack":                         TestHandingBackIsTriedAgain,
		"ErrorsToAllWhoWait":                  TestReceiveTellsErrorsToAllWhoWait,
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
		"PayloadsAreHidden":                   TestPayloadsAreHidden,
		"ReplayedMessagesSayBy":               TestReplayedMessagesSayBy,
		"ListsArePaged":                       TestJB7_ListsArePagedAndStable,
		"SchedulesRunNow":                     TestSchedulesRunNow,
	} {
		t.Run(name, test)
	}
}
