"""How a sync class is declared from an async one.

    class Producer(SyncClient[aio.Producer]):
        @same_constructor(aio.Producer)
        def __init__(self, make: Callable[[], aio.Producer]) -> None:
            super().__init__(make)

        send = blocking(aio.Producer.send)

Nothing is written twice: names, parameters, defaults, types and docstrings are those of the async class. A type checker sees
`send` with the parameters of the coroutine function and what it returns without the `await`.

    same_constructor   the constructor: same parameters
    blocking    a coroutine function: called, it waits for the result
    on_loop     a plain method: it is called on the loop, where the async object lives, and waited for
    soon        a method that returns an asyncio.Future: the sync one returns a concurrent.futures.Future at once

An object made before a fork is made anew in the child at its first use there, with the same arguments, and started if it was
started: nothing of the parent's connections is used. For consumers, which have duties towards their group, that would be a
surprise; they say `remade_after_fork = False` and refuse.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from firearrow.client.errors import ClosedError
from firearrow.client.sync.loop_thread import background, close_at_exit, remaking, was_closed

P = ParamSpec("P")
R = TypeVar("R")


class AsyncClient(Protocol):
    def start(self) -> Coroutine[Any, Any, object]: ...

    def close(self) -> Coroutine[Any, Any, object]: ...

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, object]: ...


A = TypeVar("A", bound=AsyncClient)
S = TypeVar("S")


class SyncClient(Generic[A]):
    """A client whose methods wait. It can be used by many threads at once, and in a `with` statement."""

    remade_after_fork: ClassVar[bool] = True

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._started = False
        self._pid = os.getpid()
        self._async = make()

    def start(self) -> None:
        """Connects. `with` does it too."""
        client = self._here()
        close_at_exit(client)
        self._started = True
        try:
            background().wait_for(client.start)
        except BaseException:
            self._started = False
            was_closed(client)
            raise

    def close(self) -> None:
        """Finishes what is in hand and disconnects. `with` does it too; a second time does nothing."""
        self._end(self._async.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end(functools.partial(self._async.__aexit__, kind, error, traceback))

    def _end(self, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if self._pid != os.getpid():
            return  # what is open is the parent's
        self._started = False
        background().wait_for(close)
        was_closed(self._async)

    def _here(self) -> A:
        """The async client of this process."""
        if self._pid != os.getpid():
            self._remake()
        return self._async

    def _remake(self) -> None:
        if not self.remade_after_fork:
            raise ClosedError(
                f"this {type(self).__name__} was made in process {self._pid}, before the fork; make another one in this process"
            )
        with remaking(self._async):
            if self._pid != os.getpid():
                self._async = self._make()
                self._pid = os.getpid()
                if self._started:
                    self.start()


def same_constructor(cls: Callable[P, A]) -> Callable[[Callable[[S, Callable[[], A]], None]], Callable[Concatenate[S, P], None]]:
    """Gives a sync class the constructor of its async class."""

    def decorate(init: Callable[[S, Callable[[], A]], None]) -> Callable[Concatenate[S, P], None]:
        def constructor(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, lambda: cls(*args, **kwargs))

        constructor.__name__ = "__init__"
        constructor.__doc__ = cls.__init__.__doc__
        constructor.__wrapped__ = cls.__init__  # type: ignore[attr-defined]  # for inspect.signature
        return constructor

    return decorate


def blocking(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> BlockingMethod[P, R]:
    """A sync method from a coroutine function of the async class."""
    return BlockingMethod(function, _wait)


def on_loop(function: Callable[Concatenate[Any, P], R]) -> BlockingMethod[P, R]:
    """A sync method from a plain method of the async class."""
    return BlockingMethod(function, _call)


def as_future(function: Callable[Concatenate[Any, P], asyncio.Future[R]]) -> BlockingMethod[P, concurrent.futures.Future[R]]:
    """A method that does not wait, from one that returns a future."""
    method: BlockingMethod[P, concurrent.futures.Future[R]] = BlockingMethod(function, _promise)
    signature = inspect.signature(function)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect.signature and help()
        return_annotation=str(signature.return_annotation).replace("asyncio.Future", "concurrent.futures.Future")
    )
    return method


class BlockingMethod(Generic[P, R]):
    """A method of a sync class, derived from one of its async class."""

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

        vars(instance)[self.__name__] = method  # found there from now on, without us
        return method


def _wait(client: SyncClient[Any], function: Callable[..., Coroutine[Any, Any, R]], args: Any, kwargs: Any) -> R:
    # By its name, so that it is that of a subclass, if it has another.
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
            promise.set_exception(ClosedError("the call was given up: its client was closed"))
            return
        error = future.exception()
        if error is None:
            promise.set_result(future.result())
        else:
            promise.set_exception(error)

    def begin() -> None:
        try:
            method(*args, **kwargs).add_done_callback(finish)
        except BaseException as error:  # the caller's, at the moment of asking for the result
            promise.set_exception(error)

    background().submit(begin)
    return promise
