"""Settings of access control."""

from __future__ import annotations

import pytest

from firearrow.auth.settings import whitelisted_codes
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError, apply, as_properties
from firearrow.namesrv.settings import NamesrvSettings

USER = '{"username":"root","password":"open sesame"}'
INNER = '{"accessKey":"inner","secretKey":"open sesame"}'


def test_secrets_of_settings_are_never_shown() -> None:
    for settings in (BrokerSettings(), NamesrvSettings()):
        apply([settings], {"initAuthenticationUser": USER, "innerClientAuthenticationCredentials": INNER})
        user, inner = settings.initial_user(), settings.inner_credentials()
        assert user is not None
        assert inner is not None
        assert (user.username, user.password.reveal()) == ("root", "open sesame")
        assert (inner.username, inner.password.reveal()) == ("inner", "open sesame")
        assert as_properties([settings])["initAuthenticationUser"] == "******"
        assert "sesame" not in f"{settings!r} {as_properties([settings])} {user!r}"


@pytest.mark.parametrize("value", ["root", "[]", '{"username":"root"}', '{"username":" ","password":"x"}', '{"password":1}'])
def test_malformed_user_is_rejected_without_showing_it(value: str) -> None:
    with pytest.raises(SettingError, match=r"initAuthenticationUser=\*\*\*\*\*\*: expected"):
        apply([BrokerSettings()], {"initAuthenticationUser": value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"authorizationEnabled": "true"}, "authenticationEnabled=true with it"),
        ({"aclEnable": "true"}, "migrateAuthFromV1Enabled=true with it"),
        ({"migrateAuthFromV1Enabled": "true"}, "authenticationEnabled=true with it"),
        ({"authenticationProvider": "com.example.Mine"}, "DefaultAuthenticationProvider"),
        ({"authorizationStrategy": "Stateless"}, "StatelessAuthorizationStrategy"),
        ({"authenticationWhitelist": "105,route"}, "unlike route"),
    ],
)
def test_setting_that_protects_nothing_is_rejected(values: dict[str, str], message: str) -> None:
    for settings in (BrokerSettings(), NamesrvSettings()):
        with pytest.raises(SettingError, match=message):
            apply([settings], values)


def test_class_names_of_apache_are_accepted() -> None:
    package = "org.apache.rocketmq.auth"
    values = {
        "authenticationProvider": f"{package}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authenticationStrategy": f"{package}.authentication.strategy.StatefulAuthenticationStrategy",
        "authorizationProvider": f"{package}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{package}.authorization.provider.LocalAuthorizationMetadataProvider",
        "authorizationStrategy": f"{package}.authorization.strategy.StatelessAuthorizationStrategy",
        "userCacheMaxNum": "1000",
    }
    assert apply([BrokerSettings()], values) == []


def test_whitelist_has_codes_and_message_names_of_the_proxy() -> None:
    assert whitelisted_codes("key", " 105, 106 ,apache.rocketmq.v2.QueryRouteRequest,") == {105, 106}
