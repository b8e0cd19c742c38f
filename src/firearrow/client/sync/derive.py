"""Derivation of blocking classes from async classes.

    class Producer(SyncClient[aio.Producer]):
        @same_constructor(aio.Producer)
        def __init__(self, make: Callable[[], aio.Producer]) -> None:
            super().__init__(make)

        send = blocking(aio.Producer.send)

Names, parameters, defaults, types and docstrings are those of the async class. A type checker sees `send` with
the parameters of the coroutine function and its awaited result.

    same_constructor   the constructor, with the same parameters
    blocking           a coroutine function: the method waits for its result
    on_loop            a plain method: called on the loop, and waited for
    as_future          a method that returns an asyncio.Future: returns a concurrent.futures.Future

An object created before a fork is created again in the child at its first use there, with the same arguments, and started if it
was started; the parent's connections are not used. Consumers, whose group counts its members, set `remade_after_fork = False` and
raise instead.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from firearrow.client.errors import ClosedError
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.sync.loop_thread import background, close_at_exit, remaking, unregister_closed

P = ParamSpec("P")
R = TypeVar("R")


A = TypeVar("A", bound=AsyncClient)
S = TypeVar("S")


class SyncClient(Generic[A]):
    """A client with blocking methods, for use by many threads at once and in `with` statements."""

    remade_after_fork: ClassVar[bool] = True

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._started = False
        self._pid = os.getpid()
        self._async = make()

    def start(self) -> None:
        """Connect. Called by `with`."""
        client = self._here()
        close_at_exit(client)
        self._started = True
        try:
            background().wait_for(client.start)
        except BaseException:
            self._started = False
            unregister_closed(client)
            raise

    def close(self) -> None:
        """Finish running work and disconnect. Called by `with`; repeated calls do nothing."""
        self._end(self._async.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end(functools.partial(self._async.__aexit__, kind, error, traceback))

    def _end(self, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if self._pid != os.getpid():
            return  # the connections belong to the parent
        self._started = False
        background().wait_for(close)
        unregister_closed(self._async)

    def _here(self) -> A:
        """Return the async client of this process."""
        if self._pid != os.getpid():
            self._remake()
        return self._async

    def _remake(self) -> None:
        if not self.remade_after_fork:
            raise ClosedError(
                f"this {type(self).__name__} was created before the fork, in process {self._pid}; create another one here"
            )
        with remaking(self._async):
            if self._pid != os.getpid():
                self._async = self._make()
                self._pid = os.getpid()
                if self._started:
                    self.start()


def same_constructor(cls: Callable[P, A]) -> Callable[[Callable[[S, Callable[[], A]], None]], Callable[Concatenate[S, P], None]]:
    """Give a blocking class the constructor of its async class."""

    def decorate(init: Callable[[S, Callable[[], A]], None]) -> Callable[Concatenate[S, P], None]:
        def constructor(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, lambda: cls(*args, **kwargs))

        constructor.__name__ = "__init__"
        constructor.__doc__ = cls.__init__.__doc__
        constructor.__wrapped__ = cls.__init__  # type: ignore[attr-defined]  # for inspect.signature
        return constructor

    return decorate


def blocking(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> BlockingMethod[P, R]:
    """Derive a blocking method from a coroutine function."""
    return BlockingMethod(function, _wait)


def on_loop(function: Callable[Concatenate[Any, P], R]) -> BlockingMethod[P, R]:
    """Derive a blocking method from a plain method, which runs on the loop."""
    return BlockingMethod(function, _call)


def as_future(function: Callable[Concatenate[Any, P], asyncio.Future[R]]) -> BlockingMethod[P, concurrent.futures.Future[R]]:
    """Derive a method that returns a `concurrent.futures.Future` from one that returns an `asyncio.Future`."""
    method: BlockingMethod[P, concurrent.futures.Future[R]] = BlockingMethod(function, _promise)
    signature = inspect.signature(function)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect.signature and help()
        return_annotation=str(signature.return_annotation).replace("asyncio.Future", "concurrent.futures.Future")
    )
    return method


class BlockingMethod(Generic[P, R]):
    """A method of a blocking class, derived from one of its async class."""

    def __init__(self, function: Callable[..., Any], how: Callable[..., R]) -> None:
        self._function = function
        self._how = how
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # for inspect.signature

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name

    def __call__(self, instance: SyncClient[Any], *args: P.args, **kwargs: P.kwargs) -> R:
        return self._how(instance, self._function, args, kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: SyncClient[Any], owner: type) -> Callable[P, R]: ...

    def __get__(self, instance: SyncClient[Any] | None, owner: type) -> Self | Callable[P, R]:
        if instance is None:
            return self
        function, how = self._function, self._how

        @functools.wraps(function)
        def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return how(instance, function, args, kwargs)

        vars(instance)[self.__name__] = method  # later lookups find it without the descriptor
        return method


def _wait(client: SyncClient[Any], function: Callable[..., Coroutine[Any, Any, R]], args: Any, kwargs: Any) -> R:
    # By name, so that a subclass may override it.
    method: Callable[..., Coroutine[Any, Any, R]] = getattr(client._here(), function.__name__)
    return background().wait_for(functools.partial(method, *args, **kwargs))


def _call(client: SyncClient[Any], function: Callable[..., R], args: Any, kwargs: Any) -> R:
    method: Callable[..., R] = getattr(client._here(), function.__name__)

    async def call() -> R:
        return method(*args, **kwargs)

    return background().wait_for(call)


def _promise(
    client: SyncClient[Any], function: Callable[..., asyncio.Future[R]], args: Any, kwargs: Any
) -> concurrent.futures.Future[R]:
    method: Callable[..., asyncio.Future[R]] = getattr(client._here(), function.__name__)
    promise: concurrent.futures.Future[R] = concurrent.futures.Future()

    def finish(future: asyncio.Future[R]) -> None:
        if not promise.set_running_or_notify_cancel():
            return
        if future.cancelled():
            promise.set_exception(ClosedError("the call was cancelled: its client was closed"))
            return
        error = future.exception()
        if error is None:
            promise.set_result(future.result())
        else:
            promise.set_exception(error)

    def begin() -> None:
        try:
            method(*args, **kwargs).add_done_callback(finish)
        except BaseException as error:  # noqa: BLE001 (raised to the caller by the future)
            promise.set_exception(error)

    background().submit(begin)
    return promise
