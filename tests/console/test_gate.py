"""Who may ask the console for something, and who may not."""

import re

import pytest

from buckets.errors import BucketsError
from tests.console.job_folder import write_job
from tests.console.served import serving

TOKEN = "0123456789abcdef-token"
PAUSE = {"what": "pause", "id": "large", "reason": "a test"}


@pytest.fixture(scope="module")
def conf_with(tmp_path_factory):
    def conf(**settings):
        return write_job(tmp_path_factory.mktemp("job"), console=settings)

    return conf


def seen(served, what="pause", rule="large"):
    """What the preview of a change carries."""
    text = served.ask(f"/rules/change?what={what}&id={rule}").text
    return re.search(r'name="seen" value="(\w+)"', text)[1]


def test_each_page_has_a_policy_that_allows_no_scripts_but_its_own(shown):
    answer = shown.ask("/")
    assert answer.status == 200
    assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert re.search(r"\son\w+=", answer.text) is None


def test_the_cookie_is_for_no_script_and_no_other_page(shown):
    shown.cookie = ""
    written = shown.ask("/").headers["set-cookie"]
    assert "HttpOnly" in written
    assert "SameSite=Strict" in written


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8484", "", "localhost.evil.example"])
def test_another_host_is_not_answered(shown, host):
    assert shown.ask("/", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost:1", "[::1]:8484", "127.0.0.1"])
def test_this_machine_is_answered_under_all_its_names(shown, host):
    assert shown.ask("/", Host=host).status == 200


def test_a_form_without_the_mark_of_the_session_changes_nothing(changing, copied):
    before = (copied.parent / "rules.yaml").read_text()
    changing.ask("/rules/change?what=pause&id=large")
    form = PAUSE | {"seen": seen(changing)}
    for given in ({"form_mark": ""}, {"form_mark": "0" * 64}):
        answer = changing.ask("/rules/change", form | given)
        assert answer.status == 403
        assert "load it again" in answer.text
    stolen, changing.cookie = changing.cookie, ""
    assert changing.ask("/rules/change", form).status == 403
    changing.cookie = stolen
    assert (copied.parent / "rules.yaml").read_text() == before


@pytest.mark.parametrize("header", [{"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}])
def test_a_form_of_another_page_changes_nothing(changing, header):
    form = PAUSE | {"seen": seen(changing)}
    answer = changing.ask("/rules/change", form, **header)
    assert answer.status == 403
    assert "another page" in answer.text


def test_a_form_that_is_too_large_is_not_read(changing):
    changing.ask("/rules")
    assert changing.ask("/rules/change", {"reason": "x" * (1 << 20)}).status == 403


def test_a_change_is_not_made_without_a_reason_or_after_another(changing, copied):
    form = PAUSE | {"seen": seen(changing)}
    assert "reason: is empty" in changing.ask("/rules/change", form | {"reason": " "}).text.lower()
    assert "cannot be seen" in changing.ask("/rules/change", form | {"reason": "a\u202eb"}).text
    file = copied.parent / "rules.yaml"
    file.write_text(file.read_text().replace("A payer spends much in an hour", "Somebody was faster"))
    assert "somebody has changed the rules" in changing.ask("/rules/change", form).text.lower()


def test_read_only_is_for_everybody(copied):
    with serving(copied, is_read_only=True) as served:
        assert "Preview" not in served.ask("/rule?id=large").text
        served.mark = served.console.site.people.form_mark(
            served.console.site.people.session(served.cookie.partition("=")[2])
        )
        assert served.ask("/rules/change?what=pause&id=large").status == 400
        for path, form in (("/rules/change", PAUSE), ("/alerts/verdict", {"alert": "x", "verdict": "fraud"})):
            answer = served.ask(path, form)
            assert answer.status == 403
            assert "needs the role" in answer.text


def test_a_token_is_asked_for_and_a_name(conf_with):
    with serving(conf_with(token=TOKEN)) as served:
        assert served.ask("/").status == 303
        assert served.ask("/alerts/live").status == 303
        assert served.ask("/metrics").status == 303
        told = served.ask("/metrics", Authorization=f"Bearer {TOKEN}")
        assert (told.status, told.headers["content-type"][:10]) == (200, "text/plain")
        assert "buckets_console_streams 0.0" in told.text
        served.ask("/sign-in")
        assert served.ask("/sign-in", {"name": "ben", "token": "wrong"}).status == 403
        assert served.ask("/").status == 303
        assert served.ask("/sign-in", {"name": " ", "token": TOKEN}).status == 403
        served.ask("/sign-in")
        assert served.ask("/sign-in", {"name": "ben", "token": TOKEN}).status == 303
        assert "ben" in served.ask("/").text
        forged = served.cookie.replace(served.cookie[-1], "0" if served.cookie[-1] != "0" else "1")
        served.cookie = forged
        assert served.ask("/").status == 303


def test_a_proxy_says_who_somebody_is_and_roles_what_they_may_do(conf_with):
    conf = conf_with(trusted_user_header="X-User", roles={"eve": "admin", "ben": "analyst"})
    with serving(conf) as served:
        assert served.ask("/").status == 401
        assert "(read)" in served.ask("/", X_User="tom").text
        assert "Pause" not in served.ask("/rule?id=large", X_User="ben").text
        assert "Snooze" in served.ask("/rule?id=large", X_User="ben").text
        assert "Pause" in served.ask("/rule?id=large", X_User="eve").text
        assert "needs the role admin" in served.ask("/rules/change?what=pause&id=large", X_User="ben").text


def test_a_proxy_of_elsewhere_shows_its_token(conf_with):
    with serving(conf_with(trusted_user_header="X-User", token=TOKEN)) as served:
        assert served.ask("/", X_User="tom").status == 401
        assert served.ask("/", X_User="tom", Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"host": "0.0.0.0"}, "nothing says who may come in"),
        ({"token": "short"}, "is shorter than 16 characters"),
        ({"roles": {"ann": "admin"}}, "add trusted_user_header"),
        ({"roles": {"ann": "king"}, "trusted_user_header": "X-User"}, "console.roles"),
        ({"port": 0}, "console.port"),
    ],
)
def test_settings_that_let_anybody_in_are_refused(recorded, tmp_path, settings, fault):
    import json

    from buckets.config.job import load_job

    conf = recorded.parent / f"conf-{len(str(settings))}.yaml"
    conf.write_text(json.dumps(json.loads(recorded.read_text()) | {"console": settings}))
    with pytest.raises(BucketsError, match=fault):
        load_job(conf)


def test_what_is_not_there_has_one_line(shown):
    answer = shown.ask("/nothing")
    assert answer.status == 404
    assert "There is no such page" in answer.text
    for path, line in {
        "/alert?id=none": "there is no alert none",
        "/rule?id=none": "there is no rule",
        "/alerts?kind=odd": "take one of trial, held and all",
        "/alerts?from=yesterday": "from:",
        "/alerts?before=x.y": "is not a place in the list",
        "/rules/change?what=odd": "go on from the page of a rule",
        "/rules/change?what=rollback&version=99": "there is no version 99",
        "/why?event=none&rule=large": "none",
    }.items():
        answer = shown.ask(path)
        assert answer.status == 400, path
        assert line.lower() in answer.text.lower(), path
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "back",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "evil.example",
        "/alerts//evil.example",
        "/%2f/evil.example",
        "/alerts\r\nX-Evil: 1",
    ],
)
def test_a_form_leads_to_no_other_place(changing, back):
    changing.ask("/alerts")
    identity = re.search(r'name="alert" value="(\w+)"', changing.ask("/alerts").text)[1]
    answer = changing.ask("/alerts/verdict", {"alert": identity, "verdict": "fraud", "back": back})
    assert answer.status == 303
    assert re.fullmatch(r"/alerts\?done=[\w.+%-]+", answer.headers["location"])


def test_a_form_leads_back_to_the_page_it_was_on(changing):
    identity = re.search(r'name="alert" value="(\w+)"', changing.ask("/alerts").text)[1]
    for back in ("/alerts?kind=all&rule=large", f"/alert?id={identity}", "/"):
        answer = changing.ask("/alerts/verdict", {"alert": identity, "verdict": "fraud", "back": back})
        assert answer.headers["location"].partition("done=")[0].rstrip("?&") == back


def test_no_link_of_an_error_leads_elsewhere(shown):
    for path in ("//evil.example/x", "/\\evil.example", "/%5Cevil.example", "/nothing/%2F%2Fevil.example"):
        answer = shown.ask(path)
        assert answer.status == 404
        assert 'href="/">Try again' in answer.text


ODD = ["\u00e9", "\u20ac\u00df", "\u0661", "\x7f", "a" * 9_000, "http://[", "%ff%00", "\U0001f600", "=", ";", "\udcff"]
HEADERS = ["Cookie", "Authorization", "Origin", "Host", "X_User", "Sec_Fetch_Site", "HX_Request"]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
@pytest.mark.parametrize("header", HEADERS)
def test_no_header_and_no_form_mark_is_a_fault_of_the_console(secured, header, odd):
    text = odd.encode("utf-8", "surrogateescape").decode("latin-1")
    cookie = secured.console.site.people.cookie
    for value in (text, f"Bearer {text}", f"{cookie}={text}.{text}.{text}", f"{cookie}={text}", f"http://{text}"):
        for form in (None, {"form_mark": odd.encode("utf-8", "replace"), "text": "x"}):
            secured.cookie = ""
            assert secured.ask("/rule/check" if form else "/", form, **{header: value}).status in (303, 400, 403, 421)


@pytest.fixture(scope="module")
def secured(conf_with):
    with serving(conf_with(token=TOKEN)) as served:
        yield served


def test_a_token_and_a_name_may_have_any_letters(conf_with):
    token = "pa\u00dfw\u00f6rter-\u20ac-und-mehr"
    header = token.encode().decode("latin-1")  # as a browser and curl send it
    with serving(conf_with(token=token)) as served:
        assert served.ask("/", Authorization=f"Bearer {header}").status == 200
        served.ask("/sign-in")
        assert served.ask("/sign-in", {"name": "Zo\u00eb", "token": token}).status == 303
        assert "Zo\u00eb" in served.ask("/").text
    conf = conf_with(trusted_user_header="X-User", roles={"Zo\u00eb": "admin"})
    with serving(conf) as served:
        name = "Zo\u00eb".encode().decode("latin-1")
        assert "Pause" in served.ask("/rule?id=large", X_User=name).text


def test_a_form_with_too_many_fields_is_not_read(changing):
    changing.ask("/rules")
    answer = changing.ask("/rules/change", {"x": ["1"] * 6_000})
    assert (answer.status, "more than 5,000 fields" in answer.text) == (403, True)
