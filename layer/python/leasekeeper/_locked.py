"""The decorator: a function, blocking or asyncio, that runs under a lock."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar, Union, cast

from . import _budget
from ._async_lock import AsyncLock, OnLost, checked_on_lost
from ._budget import Seconds
from ._invocation import Invocation, entered, of_arguments
from ._keys import KeyTemplate, checked_key
from ._lease import checked_strict
from ._lock import Lock

F = TypeVar("F", bound=Callable[..., Any])

#: The keyword-only parameter that gets the lock.
_LEASE = "lease"


def locked(
    template: Union[str, Callable[..., str]],
    /,
    *,
    wait: Optional[Seconds] = None,
    lease: Optional[Seconds] = None,
    reserve: Optional[Seconds] = None,
    strict_release: Optional[bool] = None,
    on_lost: Optional[OnLost] = None,
    **values: Callable[..., str],
) -> Callable[[F], F]:
    """Decorates a function, `def` or `async def`, that runs under a lock: a Lambda handler or any other.

    `template` is a key template whose placeholders are the function's parameters, or a function of the call's arguments
    that returns the key. What a placeholder stands for can also be computed from the call's arguments::

        @locked("customer:{customer_id}", customer_id=lambda event, context: event["customer_id"])
        def handler(event, context): ...

        @locked("customer:{customer_id}")
        async def synchronize(customer_id: str) -> None: ...

    Every value must be a str. `wait` is how long to wait for the lock (0 tries once), `lease` how long it outlives a
    holder that vanished, `reserve` what to keep of the invocation for the work; each in seconds or a timedelta, and the
    extension's setting where it is not given. `strict_release` makes an unconfirmed release an error.

    The lock is given back before the function returns. If it was lost meanwhile, :class:`Lost` is raised, unless the
    function raised something else. The task of an `async def` is cancelled when that happens, and the cancellation is
    turned into :class:`Lost`; with `on_lost="notify"` it is only told, by `current_lease().lost`.

    A keyword-only parameter named `lease` gets the lock; it is not part of the decorated function's signature. Elsewhere
    it is had by `current_lease()`. A Lambda context among the arguments binds the lock to its invocation; without one it
    belongs to the invocation that this code runs in. A function under a lock that calls itself would wait for itself.

    Raises at decoration: :class:`Protocol` for a wrong template or option, TypeError for what cannot be locked.
    """
    wishes: Dict[str, Any] = {"wait": wait, "lease": lease, "reserve": reserve, "strict_release": strict_release}
    _budget.wishes(wait, lease, reserve)
    checked_strict(strict_release)
    if on_lost is not None:
        checked_on_lost(on_lost)
    key = _Key(template, values)

    def decorate(function: F) -> F:
        call = _Call(function, key)
        if _is_async(function):
            return cast(F, _asynchronous(function, call, wishes, on_lost or "cancel"))
        if on_lost == "cancel":
            raise TypeError("`on_lost` is for `async def`: nothing can cancel a function that blocks")
        return cast(F, _synchronous(function, call, wishes))

    return decorate


def _synchronous(function: Callable[..., Any], call: _Call, wishes: Mapping[str, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        key, invocation = call.of(args, kwargs)
        with entered(invocation), Lock(key, **wishes) as lease:
            return _done(function(*args, **call.with_lease(kwargs, lease)))

    call.sign(wrapper)
    return wrapper


def _asynchronous(
    function: Callable[..., Any], call: _Call, wishes: Mapping[str, Any], on_lost: OnLost
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        key, invocation = call.of(args, kwargs)
        with entered(invocation):
            async with AsyncLock(key, on_lost=on_lost, **wishes) as lease:
                return _done(await function(*args, **call.with_lease(kwargs, lease)))

    call.sign(wrapper)
    return wrapper


class _Key:
    """Where a call's key comes from."""

    def __init__(self, template: Union[str, Callable[..., str]], values: Mapping[str, Callable[..., str]]) -> None:
        self.values = values
        self.function = None if isinstance(template, str) else template
        self.template = KeyTemplate(template) if isinstance(template, str) else None
        if self.function is not None and not callable(self.function):
            raise TypeError(f"a key template or a function is expected, not {type(template).__name__}")
        if self.function is not None and _is_async(self.function):
            raise TypeError("the key's function must not be an `async def`: a key is made before anything is awaited")
        names = self.template.names if self.template else ()
        for name, value in values.items():
            if name not in names:
                raise TypeError(f"{name!r} is no option of `locked`, and no placeholder of the key template")
            if not callable(value):
                raise TypeError(f"{name!r} must be a function of the call's arguments, not {type(value).__name__}")
            if _is_async(value):
                raise TypeError(f"{name!r} must not be an `async def`: a key is made before anything is awaited")
        #: The placeholders that are parameters of the function.
        self.parameters = [name for name in names if name not in values]

    def of(self, bound: inspect.BoundArguments) -> str:
        """The key of one call."""
        if self.function is not None:
            return checked_key(self.function(*bound.args, **bound.kwargs))
        assert self.template is not None  # One of the two.
        values = {name: bound.arguments[name] for name in self.parameters}
        for name, value in self.values.items():
            values[name] = value(*bound.args, **bound.kwargs)
        return self.template.render(values)


class _Call:
    """How the decorated function is called."""

    def __init__(self, function: Callable[..., Any], key: _Key) -> None:
        _refuse(function)
        self._key = key
        signature = inspect.signature(function)
        parameter = signature.parameters.get(_LEASE)
        self._wants_lease = parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if self._wants_lease:
            rest = [parameter for name, parameter in signature.parameters.items() if name != _LEASE]
            signature = signature.replace(parameters=rest)
        self._signature = signature
        for name in key.parameters:
            found = signature.parameters.get(name)
            if found is None or found.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise TypeError(
                    f"the placeholder {name!r} of the key template is no parameter of "
                    f"{getattr(function, '__qualname__', function)!r}: add one, or give its value to `locked`"
                )

    def of(self, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tuple[str, Optional[Invocation]]:
        """The key of one call, and the invocation of a context among its arguments. Raises TypeError for a wrong call."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._key.of(bound), of_arguments((*bound.args, *bound.kwargs.values()))

    def with_lease(self, kwargs: Dict[str, Any], lease: Union[Lock, AsyncLock]) -> Dict[str, Any]:
        """The call's keyword arguments as the function gets them."""
        return {**kwargs, _LEASE: lease} if self._wants_lease else kwargs

    def sign(self, wrapper: Callable[..., Any]) -> None:
        """Hides the lease from the signature."""
        if self._wants_lease:
            wrapper.__signature__ = self._signature  # type: ignore[attr-defined]


def _done(result: Any) -> Any:
    """What the work returned. Raises TypeError if that is work which nobody has begun."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # Nobody is to be told that it was never awaited.
        raise TypeError(
            f"the function under `locked` returned an object of the type {type(result).__name__}, whose work would run "
            "after the lock is given back: put `@locked` directly above an `async def`, or take a lock inside"
        )
    return result


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _refuse(function: Any) -> None:
    """Raises TypeError for what would be over before its work began."""
    if isinstance(function, (classmethod, staticmethod)):
        raise TypeError("put `@locked` below `@classmethod` or `@staticmethod`")
    if inspect.isclass(function):
        raise TypeError("`locked` is for functions: the lock would be given back when the object is made")
    if not callable(function):
        raise TypeError(f"`locked` is for functions, not {type(function).__name__}")
    for candidate in (function, getattr(function, "__call__", None)):
        if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                "`locked` is not for generators: the lock would be given back before the first value; take a `Lock` inside"
            )
