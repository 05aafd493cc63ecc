"""The hub: one subscriber connection per process for all who watch tasks (step *expose*).

A channel, a task's or the feed's, is asked for when its first local reader comes and given up when
its last one leaves. Pub/sub keeps nothing: after every cut the readers are told of a `GAP` and look
into the store, which has it all. The hub does not know what a message means.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.monkey import is_module_patched

from async_nodes.access.streams.events import CONFIRM_SECONDS
from async_nodes.access.streams.subscriber_link import Confirmed, Published, Request, SubscriberLink
from async_nodes.access.streams.subscription import CLOSED, GAP, Message, Signal, Subscription
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.pipeline_link import LinkBrokenError
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.settings import Settings
    from async_nodes.storage.redis_store import RedisStore

__all__ = ["CLOSED", "GAP", "Hub", "Message", "Signal", "Subscription"]

_log = logging.getLogger(__name__)

OUTAGE_SECONDS = 7.0
"""After so long without a sign of the server the subscriptions end: nobody waits for ever."""

CLIENT_NAME = "async-nodes-events"
_PAUSE_FIRST, _PAUSE_MOST = 0.05, 1.0


class _Channel:
    """One channel and who reads it here."""

    __slots__ = ("confirmed", "name", "readers")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.readers: set[Subscription] = set()
        self.confirmed = False

    def confirm(self) -> None:
        """Note that from now on every message arrives."""
        self.confirmed = True
        for reader in self.readers:
            reader.confirm()

    def request(self, *, subscribe: bool) -> Request:
        """Return what to send to the server.

        The answer finds this very object: a channel that was given up and asked for again is
        another one.
        """
        return Request(subscribe, self.name, self)


class Hub:
    """Hand the events of all tasks that somebody watches to who watches them.

    Needs a process patched by gevent. Connects at `start` (or the first `subscribe`), and again
    whenever the connection is lost.

    Args:
        settings: where Redis is.
        store: spells the channels.

    Raises:
        AsyncNodesError: ``unpatched`` when gevent has not patched sockets.

    """

    def __init__(self, settings: Settings, store: RedisStore) -> None:
        if not is_module_patched("socket"):
            raise AsyncNodesError("unpatched", "the event hub needs gevent.monkey.patch_all()")
        self._url = settings.store_url
        self._keys = store.keys
        self._channels: dict[bytes, _Channel] = {}
        self._link: SubscriberLink | None = None
        self._outbox: list[Request] = []
        self._outbox_filled = Event()
        self._greenlets: list[Any] = []
        self._ending: Any = None
        self._pause = 0.0
        self._why_down = "not connected yet"
        self._subscribers = 0
        self._closed = False

    @property
    def subscribers(self) -> int:
        """Return how many subscriptions are open in this process."""
        return self._subscribers

    @property
    def channels(self) -> int:
        """Return how many channels are read in this process."""
        return len(self._channels)

    @property
    def connected(self) -> bool:
        """Tell whether the server answered when last heard of."""
        return self._link is not None

    @property
    def closed(self) -> bool:
        """Tell whether the process is about to end."""
        return self._closed

    def start(self) -> None:
        """Begin to connect; twice does no harm."""
        if not self._greenlets and not self._closed:
            self._greenlets = [gevent.spawn(self._run), gevent.spawn(self._send)]

    def close(self) -> None:
        """End every subscription and the connection, for good."""
        if self._closed:
            return
        self._closed = True
        self._end_subscriptions()
        self._cancel_ending()
        gevent.killall(self._greenlets, block=False)
        if self._link is not None:
            self._link.close()
            self._link = None

    def subscribe(self, task_id: str, *, timeout: float = CONFIRM_SECONDS) -> Subscription:
        """Return a subscription to a task's events that will miss none from now on.

        Args:
            task_id: whose events.
            timeout: seconds to wait for the server's confirmation.

        Raises:
            StoreUnavailable: it did not come.

        """
        return self.listen(self._keys.channel(task_id), timeout=timeout)

    def listen(self, name: str, *, timeout: float = CONFIRM_SECONDS) -> Subscription:
        """Return a subscription to a channel that `storage.keys` spells; as `subscribe`."""
        if self._closed:
            raise StoreUnavailable("the server is stopping")
        self.start()
        channel = self._channel(name.encode())
        subscription = Subscription(lambda leaving: self._leave(channel, leaving))
        channel.readers.add(subscription)
        self._subscribers += 1
        subscription.confirmed = channel.confirmed
        confirmed = False
        try:
            confirmed = subscription.wait_confirmed(timeout)
        finally:
            if not confirmed:
                subscription.close()
        if not confirmed:
            raise StoreUnavailable(f"no events can be read: {self._why_down}")
        return subscription

    def _channel(self, name: bytes) -> _Channel:
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel(name)
            self._ask(channel.request(subscribe=True))
        return channel

    def _leave(self, channel: _Channel, subscription: Subscription) -> None:
        self._subscribers -= 1
        channel.readers.discard(subscription)
        if not channel.readers and self._channels.get(channel.name) is channel:
            del self._channels[channel.name]
            self._ask(channel.request(subscribe=False))

    def _ask(self, request: Request) -> None:
        if self._link is not None:  # a new link begins by asking for all channels
            self._outbox.append(request)
            self._outbox_filled.set()

    # -- the two greenlets -------------------------------------------------------------------

    def _run(self) -> None:
        """Connect, read, and connect again."""
        while True:
            link = self._connect()
            try:
                while True:
                    self._hand_out(link.read())
                    # Readers go first, or a flood would only fill their buffers.
                    gevent.sleep(0)
            except LinkBrokenError as broken:
                self._lose(link, str(broken))
            except Exception:  # noqa: BLE001 - see below
                # A fault of ours may cost a reconnect, not the events of everybody.
                _log.exception("The event hub stumbled", extra={"action": "hub_failed"})
                self._lose(link, "a fault in the event hub")

    def _send(self) -> None:
        """Send what gathered, everything that waits in one go."""
        while True:
            self._outbox_filled.wait()
            self._outbox_filled.clear()
            link, outbox, self._outbox = self._link, self._outbox, []
            if link is None or not outbox:
                continue
            try:
                link.send(outbox)
            except LinkBrokenError:
                link.close()  # which the reading greenlet notices

    def _connect(self) -> SubscriberLink:
        while True:
            jitter = 0.5 + random.random() / 2  # noqa: S311 - spreads reconnects, guards nothing
            gevent.sleep(self._pause * jitter)
            # Back to 0 with the first confirmation: a server that refuses is not asked in a loop.
            self._pause = min(_PAUSE_MOST, max(_PAUSE_FIRST, self._pause * 2))
            try:
                link = SubscriberLink.connect(self._url, client_name=CLIENT_NAME)
            except LinkBrokenError as broken:
                self._tell(str(broken))
            else:
                self._adopt(link)
                return link

    def _adopt(self, link: SubscriberLink) -> None:
        self._link = link
        self._outbox = [channel.request(subscribe=True) for channel in self._channels.values()]
        self._outbox_filled.set()

    def _lose(self, link: SubscriberLink, why: str) -> None:
        self._link = None
        link.close()
        self._tell(why)
        for channel in self._channels.values():
            channel.confirmed = False
        if self._ending is None:
            rest = OUTAGE_SECONDS - (monotonic() - link.heard_at)
            self._ending = gevent.spawn_later(max(rest, 0.0), self._end_outage)

    def _tell(self, why: str) -> None:
        if why != self._why_down:  # once per cause, not once per try
            _log.warning("No events from Redis: %s", why, extra={"action": "hub_lost"})
        self._why_down = why

    def _cancel_ending(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.kill(block=False)

    # -- what arrives ------------------------------------------------------------------------

    def _hand_out(self, arrived: Iterable[Confirmed | Published]) -> None:
        for item in arrived:
            if isinstance(item, Published):
                self._publish(item)
                continue
            self._pause, self._why_down = 0.0, "the server does not confirm the subscription"
            self._cancel_ending()
            if item.request.subscribe and isinstance(item.request.token, _Channel):
                item.request.token.confirm()

    def _publish(self, published: Published) -> None:
        channel = self._channels.get(published.channel)
        if channel is None or not channel.confirmed:
            return
        message = parse_message(published.payload)
        if message is None:
            _log.warning(
                "A message on %s is none of ours", channel.name, extra={"action": "hub_foreign"}
            )
            return
        for reader in channel.readers:
            reader.deliver(message)

    def _end_outage(self) -> None:
        self._ending = None
        self._end_subscriptions()

    def _end_subscriptions(self) -> None:
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.end()
        self._channels.clear()


def parse_message(payload: bytes) -> Message | None:
    """Return the message in ``<version>-<seq> <type> <json>``, None if it is not one."""
    try:
        position, kind, json = payload.split(b" ", 2)
        version, _, seq = position.partition(b"-")
        return Message(int(version), int(seq), kind.decode("ascii"), json)
    except ValueError:
        return None
