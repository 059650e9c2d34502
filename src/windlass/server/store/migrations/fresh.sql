CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
-- next
INSERT INTO "alembic_version" VALUES('0001')
-- next
CREATE TABLE artifacts (
	owner_id VARCHAR(64) NOT NULL, 
	path VARCHAR(1024) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	job_id VARCHAR(32), 
	digest VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_artifacts PRIMARY KEY (owner_id, path)
)
-- next
CREATE TABLE attempts (
	id VARCHAR(32) NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	outcome VARCHAR(20), 
	reason TEXT NOT NULL, 
	engine VARCHAR(40) NOT NULL, 
	placement TEXT NOT NULL, 
	worker_hash VARCHAR(64) NOT NULL, 
	run_hash VARCHAR(64) NOT NULL, 
	tokens BLOB NOT NULL, 
	kek VARCHAR(32) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	launched_ms BIGINT, 
	alive_ms BIGINT, 
	started_ms BIGINT, 
	ending_ms BIGINT, 
	grace_ms BIGINT, 
	ending_outcome VARCHAR(20), 
	ending_wish VARCHAR(20), 
	deadline_ms BIGINT, 
	over_ms BIGINT, 
	exit_code INTEGER, 
	step BIGINT, 
	failure TEXT, 
	orders INTEGER NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (id), 
	CONSTRAINT fk_attempts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id), 
	CONSTRAINT uq_attempts_job_id_number UNIQUE (job_id, number), 
	CONSTRAINT uq_attempts_run_hash UNIQUE (run_hash), 
	CONSTRAINT uq_attempts_worker_hash UNIQUE (worker_hash)
)
-- next
CREATE TABLE audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	project_id VARCHAR(32) NOT NULL, 
	number BIGINT, 
	at_ms BIGINT NOT NULL, 
	project_name VARCHAR(40) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	credential VARCHAR(64) NOT NULL, 
	source VARCHAR(64) NOT NULL, 
	request_id VARCHAR(32) NOT NULL, 
	action VARCHAR(80) NOT NULL, 
	object VARCHAR(255) NOT NULL, 
	outcome VARCHAR(40) NOT NULL, 
	times INTEGER NOT NULL, 
	details TEXT NOT NULL, 
	hash VARCHAR(64)
)
-- next
CREATE TABLE budget_marks (
	kind VARCHAR(10) NOT NULL, 
	subject_id VARCHAR(32) NOT NULL, 
	period VARCHAR(10) NOT NULL, 
	amount BIGINT NOT NULL, 
	percent INTEGER NOT NULL, 
	cost BIGINT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	CONSTRAINT pk_budget_marks PRIMARY KEY (kind, subject_id, period, amount, percent)
)
-- next
CREATE TABLE budgets (
	kind VARCHAR(10) NOT NULL, 
	subject_id VARCHAR(32) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	amount BIGINT NOT NULL, 
	period VARCHAR(10) NOT NULL, 
	on_spent VARCHAR(10) NOT NULL, 
	spent BOOLEAN NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	set_by VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_budgets PRIMARY KEY (kind, subject_id)
)
-- next
CREATE TABLE bundles (
	digest VARCHAR(64) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	files TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	bytes BIGINT NOT NULL, 
	complete INTEGER NOT NULL, 
	created_ms BIGINT NOT NULL, 
	used_ms BIGINT NOT NULL, 
	CONSTRAINT pk_bundles PRIMARY KEY (digest, project_id)
)
-- next
CREATE TABLE checkpoints (
	job_id VARCHAR(32) NOT NULL, 
	path VARCHAR(1024) NOT NULL, 
	attempt INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	registered_ms BIGINT NOT NULL, 
	bad TEXT, 
	source VARCHAR(20) DEFAULT 'windlass' NOT NULL, 
	ranks INTEGER DEFAULT '0' NOT NULL, 
	verified_ms BIGINT, 
	removing_ms BIGINT, 
	removing_why TEXT, 
	CONSTRAINT pk_checkpoints PRIMARY KEY (job_id, path), 
	CONSTRAINT fk_checkpoints_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id)
)
-- next
CREATE TABLE dependencies (
	job_id VARCHAR(32) NOT NULL, 
	after_id VARCHAR(32) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	met INTEGER NOT NULL, 
	CONSTRAINT pk_dependencies PRIMARY KEY (job_id, after_id), 
	CONSTRAINT fk_dependencies_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id)
)
-- next
CREATE TABLE engines (
	name VARCHAR(40) NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	options TEXT NOT NULL, 
	created_ms BIGINT NOT NULL, 
	CONSTRAINT pk_engines PRIMARY KEY (name)
)
-- next
CREATE TABLE event_positions (
	id INTEGER NOT NULL, 
	last BIGINT NOT NULL, 
	CONSTRAINT pk_event_positions PRIMARY KEY (id)
)
-- next
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	position BIGINT, 
	job_id VARCHAR(32), 
	project_id VARCHAR(32) NOT NULL, 
	seq BIGINT NOT NULL, 
	attempt INTEGER, 
	kind VARCHAR(40) NOT NULL, 
	at_ms BIGINT NOT NULL, 
	state VARCHAR(20), 
	reason TEXT DEFAULT '' NOT NULL, 
	data TEXT DEFAULT '{}' NOT NULL, 
	CONSTRAINT uq_events_job_id_seq UNIQUE (job_id, seq)
)
-- next
CREATE TABLE holdings (
	attempt_id VARCHAR(32) NOT NULL, 
	part INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	job_name VARCHAR(255) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	project_name VARCHAR(255) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	pool VARCHAR(255) NOT NULL, 
	gpu_model VARCHAR(255) NOT NULL, 
	nodes TEXT NOT NULL, 
	members INTEGER NOT NULL, 
	cpus_milli BIGINT NOT NULL, 
	memory_mib BIGINT NOT NULL, 
	gpu_milli BIGINT NOT NULL, 
	cost_limit BIGINT, 
	from_ms BIGINT NOT NULL, 
	CONSTRAINT pk_holdings PRIMARY KEY (attempt_id, part)
)
-- next
CREATE TABLE idempotency (
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	status INTEGER NOT NULL, 
	answer TEXT NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (project_id, user_id, "key")
)
-- next
CREATE TABLE identities (
	issuer VARCHAR(500) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	subject VARCHAR(255), 
	user_id VARCHAR(32) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	CONSTRAINT pk_identities PRIMARY KEY (issuer, value), 
	CONSTRAINT fk_identities_user_id_users FOREIGN KEY(user_id) REFERENCES users (id), 
	CONSTRAINT uq_identities_issuer_subject UNIQUE (issuer, subject)
)
-- next
CREATE TABLE jobs (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(32) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	reason TEXT NOT NULL, 
	wish VARCHAR(20), 
	wish_for VARCHAR(32), 
	wish_reason TEXT, 
	wish_now INTEGER NOT NULL, 
	revision BIGINT NOT NULL, 
	fence INTEGER NOT NULL, 
	framework VARCHAR(40) NOT NULL, 
	spec TEXT NOT NULL, 
	queue VARCHAR(40) NOT NULL, 
	priority INTEGER NOT NULL, 
	order_ms BIGINT NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	preemptions INTEGER NOT NULL, 
	promised TEXT, 
	resized_ms BIGINT, 
	members INTEGER NOT NULL, 
	gpus INTEGER NOT NULL, 
	bundle VARCHAR(64), 
	engine VARCHAR(40), 
	submitted_ms BIGINT NOT NULL, 
	queued_ms BIGINT, 
	started_ms BIGINT, 
	ended_ms BIGINT, 
	not_before_ms BIGINT NOT NULL, 
	expires_ms BIGINT, 
	exit_code INTEGER, 
	outcome VARCHAR(20), 
	failures INTEGER NOT NULL, 
	stale_restarts INTEGER NOT NULL, 
	lost_nodes TEXT NOT NULL, 
	step BIGINT, 
	done BIGINT, 
	total BIGINT, 
	rerun_of VARCHAR(32), 
	CONSTRAINT fk_jobs_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_jobs_user_id_users FOREIGN KEY(user_id) REFERENCES users (id), 
	CONSTRAINT uq_jobs_id UNIQUE (id)
)
-- next
CREATE TABLE keys (
	access_key VARCHAR(64) NOT NULL, 
	name VARCHAR(40) DEFAULT '' NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	secret BLOB NOT NULL, 
	kek VARCHAR(32) NOT NULL, 
	version INTEGER NOT NULL, 
	created_ms BIGINT NOT NULL, 
	last_used_ms BIGINT, 
	expires_ms BIGINT, 
	disabled BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_keys PRIMARY KEY (access_key), 
	CONSTRAINT fk_keys_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_keys_user_id_users FOREIGN KEY(user_id) REFERENCES users (id)
)
-- next
CREATE TABLE leases (
	name VARCHAR(40) NOT NULL, 
	holder VARCHAR(200) NOT NULL, 
	epoch BIGINT NOT NULL, 
	until_ms BIGINT NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
)
-- next
CREATE TABLE ledger (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	attempt_id VARCHAR(32) NOT NULL, 
	part INTEGER NOT NULL, 
	kind VARCHAR(10) NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	cpu BIGINT NOT NULL, 
	memory BIGINT NOT NULL, 
	gpu BIGINT NOT NULL, 
	used_cpu BIGINT NOT NULL, 
	used_memory BIGINT NOT NULL, 
	peak_bytes BIGINT NOT NULL, 
	cost BIGINT NOT NULL, 
	CONSTRAINT uq_ledger_attempt_id_part_kind_from_ms UNIQUE (attempt_id, part, kind, from_ms)
)
-- next
CREATE TABLE limits (
	project VARCHAR(40) NOT NULL, 
	limits TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_limits PRIMARY KEY (project)
)
-- next
CREATE TABLE login_attempts (
	"key" VARCHAR(64) NOT NULL, 
	count INTEGER NOT NULL, 
	last_ms BIGINT NOT NULL, 
	until_ms BIGINT NOT NULL, 
	CONSTRAINT pk_login_attempts PRIMARY KEY ("key")
)
-- next
CREATE TABLE login_links (
	hash VARCHAR(64) NOT NULL, 
	purpose VARCHAR(20) NOT NULL, 
	user_id VARCHAR(32), 
	expires_ms BIGINT NOT NULL, 
	CONSTRAINT pk_login_links PRIMARY KEY (hash), 
	CONSTRAINT fk_login_links_user_id_users FOREIGN KEY(user_id) REFERENCES users (id)
)
-- next
CREATE TABLE memberships (
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	role VARCHAR(20) NOT NULL, 
	added_ms BIGINT NOT NULL, 
	CONSTRAINT pk_memberships PRIMARY KEY (project_id, user_id), 
	CONSTRAINT fk_memberships_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_memberships_user_id_users FOREIGN KEY(user_id) REFERENCES users (id)
)
-- next
CREATE TABLE model_aliases (
	model_id VARCHAR(32) NOT NULL, 
	alias VARCHAR(256) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	moved_ms BIGINT NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_model_aliases PRIMARY KEY (model_id, alias), 
	CONSTRAINT fk_model_aliases_model_id_models FOREIGN KEY(model_id) REFERENCES models (id)
)
-- next
CREATE TABLE model_moves (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	project_id VARCHAR(32) NOT NULL, 
	model_id VARCHAR(32) NOT NULL, 
	alias VARCHAR(256) NOT NULL, 
	"before" INTEGER, 
	"after" INTEGER, 
	user_id VARCHAR(32) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	at_ms BIGINT NOT NULL
)
-- next
CREATE TABLE model_versions (
	model_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	files TEXT NOT NULL, 
	bytes BIGINT NOT NULL, 
	format VARCHAR(40) NOT NULL, 
	unsafe TEXT NOT NULL, 
	stage VARCHAR(20) NOT NULL, 
	staged_ms BIGINT NOT NULL, 
	description TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	run_id VARCHAR(64), 
	job_id VARCHAR(32), 
	logged_id VARCHAR(64), 
	source TEXT NOT NULL, 
	run_link TEXT NOT NULL, 
	lineage TEXT NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_model_versions PRIMARY KEY (model_id, number), 
	CONSTRAINT fk_model_versions_model_id_models FOREIGN KEY(model_id) REFERENCES models (id)
)
-- next
CREATE TABLE models (
	id VARCHAR(32) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	description TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	last INTEGER NOT NULL, 
	created_ms BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (id), 
	CONSTRAINT uq_models_project_id_name UNIQUE (project_id, name)
)
-- next
CREATE TABLE nodes (
	engine VARCHAR(40) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	reason TEXT NOT NULL, 
	offer TEXT NOT NULL, 
	seen_ms BIGINT NOT NULL, 
	revision INTEGER NOT NULL, 
	CONSTRAINT pk_nodes PRIMARY KEY (engine, name)
)
-- next
CREATE TABLE objects (
	"key" VARCHAR(255) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	path VARCHAR(1024) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	job_id VARCHAR(32), 
	digest VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	used_ms BIGINT NOT NULL, 
	removing_ms BIGINT, 
	CONSTRAINT pk_objects PRIMARY KEY ("key")
)
-- next
CREATE TABLE orders (
	attempt_id VARCHAR(32) NOT NULL, 
	id INTEGER NOT NULL, 
	node VARCHAR(63) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	body TEXT NOT NULL, 
	asked_ms BIGINT NOT NULL, 
	done_ms BIGINT, 
	ok INTEGER, 
	result TEXT, 
	CONSTRAINT pk_orders PRIMARY KEY (attempt_id, id, node), 
	CONSTRAINT fk_orders_attempt_id_attempts FOREIGN KEY(attempt_id) REFERENCES attempts (id)
)
-- next
CREATE TABLE prices (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	resource VARCHAR(80) NOT NULL, 
	from_ms BIGINT NOT NULL, 
	price BIGINT, 
	set_ms BIGINT NOT NULL, 
	set_by VARCHAR(255) NOT NULL
)
-- next
CREATE TABLE projects (
	id VARCHAR(32) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	removed_ms BIGINT, 
	CONSTRAINT pk_projects PRIMARY KEY (id)
)
-- next
CREATE TABLE queues (
	name VARCHAR(40) NOT NULL, 
	policy VARCHAR(20) NOT NULL, 
	paused BOOLEAN NOT NULL, 
	description TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_queues PRIMARY KEY (name)
)
-- next
INSERT INTO "queues" VALUES('default','backfill',0,'',1,0)
-- next
CREATE TABLE quota_changes (
	id INTEGER NOT NULL, 
	revision BIGINT NOT NULL, 
	CONSTRAINT pk_quota_changes PRIMARY KEY (id)
)
-- next
CREATE TABLE quotas (
	name VARCHAR(40) NOT NULL, 
	cohort BOOLEAN NOT NULL, 
	parent VARCHAR(40), 
	nominal TEXT NOT NULL, 
	borrow TEXT NOT NULL, 
	lend TEXT NOT NULL, 
	weight_milli BIGINT NOT NULL, 
	reclaim_any BOOLEAN NOT NULL, 
	caps TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_quotas PRIMARY KEY (name)
)
-- next
CREATE TABLE recent_use (
	tenant VARCHAR(255) NOT NULL, 
	amount TEXT NOT NULL, 
	half_lives BIGINT NOT NULL, 
	CONSTRAINT pk_recent_use PRIMARY KEY (tenant)
)
-- next
CREATE TABLE saved_views (
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	page VARCHAR(40) NOT NULL, 
	name VARCHAR(80) NOT NULL, 
	search TEXT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	CONSTRAINT pk_saved_views PRIMARY KEY (project_id, user_id, page, name)
)
-- next
CREATE TABLE secrets (
	project_id VARCHAR(32) NOT NULL, 
	owner_id VARCHAR(32) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	version BIGINT NOT NULL, 
	sealed BLOB NOT NULL, 
	kek VARCHAR(32) NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	changed_by VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_secrets PRIMARY KEY (project_id, owner_id, name)
)
-- next
CREATE TABLE sessions (
	id VARCHAR(32) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	epoch INTEGER NOT NULL, 
	how VARCHAR(20) NOT NULL, 
	address VARCHAR(64) NOT NULL, 
	browser VARCHAR(200) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	seen_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (id), 
	CONSTRAINT fk_sessions_user_id_users FOREIGN KEY(user_id) REFERENCES users (id), 
	CONSTRAINT uq_sessions_hash UNIQUE (hash)
)
-- next
CREATE TABLE signatures (
	hash VARCHAR(64) NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	CONSTRAINT pk_signatures PRIMARY KEY (hash)
)
 WITHOUT ROWID


-- next
CREATE TABLE starts (
	job_id VARCHAR(32) NOT NULL, 
	kind VARCHAR(10) NOT NULL, 
	resume INTEGER NOT NULL, 
	source_id VARCHAR(32), 
	source_name VARCHAR(300) NOT NULL, 
	step BIGINT, 
	version INTEGER, 
	digest VARCHAR(64) NOT NULL, 
	path VARCHAR(1024), 
	root TEXT, 
	name VARCHAR(300) NOT NULL, 
	files TEXT NOT NULL, 
	lineage TEXT NOT NULL, 
	CONSTRAINT pk_starts PRIMARY KEY (job_id), 
	CONSTRAINT fk_starts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id)
)
-- next
CREATE TABLE studies (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(32) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	reason TEXT NOT NULL, 
	wish VARCHAR(20), 
	wish_reason TEXT, 
	ending VARCHAR(20), 
	spec TEXT NOT NULL, 
	framework VARCHAR(40) NOT NULL, 
	bundle VARCHAR(64), 
	target INTEGER NOT NULL, 
	made INTEGER NOT NULL, 
	warm TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	"key" VARCHAR(255), 
	digest VARCHAR(64) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	deadline_ms BIGINT, 
	ended_ms BIGINT, 
	CONSTRAINT fk_studies_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_studies_user_id_users FOREIGN KEY(user_id) REFERENCES users (id), 
	CONSTRAINT uq_studies_id UNIQUE (id), 
	CONSTRAINT uq_studies_project_id_name UNIQUE (project_id, name), 
	CONSTRAINT uq_studies_project_id_user_id_key UNIQUE (project_id, user_id, "key")
)
-- next
CREATE TABLE tokens (
	id VARCHAR(32) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	scopes TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	created_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	last_used_ms BIGINT, 
	disabled BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT fk_tokens_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_tokens_user_id_users FOREIGN KEY(user_id) REFERENCES users (id), 
	CONSTRAINT uq_tokens_hash UNIQUE (hash)
)
-- next
CREATE TABLE trials (
	study_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	reason TEXT NOT NULL, 
	params TEXT NOT NULL, 
	attrs TEXT NOT NULL, 
	rung INTEGER NOT NULL, 
	parent INTEGER, 
	"values" TEXT NOT NULL, 
	excess TEXT NOT NULL, 
	reports TEXT NOT NULL, 
	created_ms BIGINT NOT NULL, 
	ended_ms BIGINT, 
	CONSTRAINT pk_trials PRIMARY KEY (study_id, number), 
	CONSTRAINT fk_trials_study_id_studies FOREIGN KEY(study_id) REFERENCES studies (id), 
	CONSTRAINT uq_trials_job_id UNIQUE (job_id)
)
-- next
CREATE TABLE usage_cursor (
	id INTEGER NOT NULL, 
	ledger_id BIGINT NOT NULL, 
	CONSTRAINT pk_usage_cursor PRIMARY KEY (id)
)
-- next
CREATE TABLE usage_days (
	day INTEGER NOT NULL, 
	project_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	pool VARCHAR(255) NOT NULL, 
	gpu_model VARCHAR(255) NOT NULL, 
	kind VARCHAR(10) NOT NULL, 
	project_name VARCHAR(255) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	cpu BIGINT NOT NULL, 
	memory BIGINT NOT NULL, 
	gpu BIGINT NOT NULL, 
	used_cpu BIGINT NOT NULL, 
	used_memory BIGINT NOT NULL, 
	peak_bytes BIGINT NOT NULL, 
	cost BIGINT NOT NULL, 
	entries BIGINT NOT NULL, 
	CONSTRAINT pk_usage_days PRIMARY KEY (day, project_id, user_id, pool, gpu_model, kind)
)
-- next
CREATE TABLE users (
	id VARCHAR(32) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	kind VARCHAR(20) DEFAULT 'person' NOT NULL, 
	role VARCHAR(20), 
	project_id VARCHAR(32), 
	password TEXT, 
	disabled BOOLEAN DEFAULT 0 NOT NULL, 
	epoch INTEGER DEFAULT '0' NOT NULL, 
	removed_ms BIGINT, 
	CONSTRAINT pk_users PRIMARY KEY (id), 
	CONSTRAINT fk_users_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
)
-- next
CREATE TABLE workers (
	attempt_id VARCHAR(32) NOT NULL, 
	node VARCHAR(63) NOT NULL, 
	seq BIGINT NOT NULL, 
	host VARCHAR(255), 
	pid BIGINT, 
	boot_id VARCHAR(64), 
	members TEXT, 
	isolation TEXT, 
	registered_ms BIGINT, 
	started_ms BIGINT, 
	beat_ms BIGINT, 
	ranks TEXT, 
	ended_ranks TEXT, 
	hung_ms BIGINT, 
	record TEXT, 
	used_cpu BIGINT NOT NULL, 
	used_memory BIGINT NOT NULL, 
	peak_bytes BIGINT NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (attempt_id, node), 
	CONSTRAINT fk_workers_attempt_id_attempts FOREIGN KEY(attempt_id) REFERENCES attempts (id)
)
-- next
CREATE UNIQUE INDEX ix_audit_project_number ON audit (project_id, number)
-- next
CREATE INDEX ix_audit_unlinked ON audit (id) WHERE number IS NULL
-- next
CREATE UNIQUE INDEX ix_events_position ON events (position)
-- next
CREATE INDEX ix_events_project_id_position ON events (project_id, position)
-- next
CREATE INDEX ix_events_unsequenced ON events (id) WHERE position IS NULL
-- next
CREATE INDEX ix_idempotency_job ON idempotency (job_id)
-- next
CREATE UNIQUE INDEX uq_projects_name ON projects (name) WHERE removed_ms IS NULL
-- next
CREATE UNIQUE INDEX uq_users_name ON users (name) WHERE removed_ms IS NULL
-- next
CREATE INDEX ix_memberships_user_id ON memberships (user_id)
-- next
CREATE INDEX ix_tokens_project_id ON tokens (project_id)
-- next
CREATE INDEX ix_tokens_user_id ON tokens (user_id)
-- next
CREATE INDEX ix_sessions_user_id ON sessions (user_id)
-- next
CREATE INDEX ix_login_links_expires_ms ON login_links (expires_ms)
-- next
CREATE INDEX ix_login_links_user_id ON login_links (user_id)
-- next
CREATE INDEX ix_login_attempts_last_ms ON login_attempts (last_ms)
-- next
CREATE INDEX ix_identities_user_id ON identities (user_id)
-- next
CREATE INDEX ix_jobs_bundle ON jobs (bundle)
-- next
CREATE INDEX ix_jobs_expires ON jobs (expires_ms)
-- next
CREATE INDEX ix_jobs_project_name_number ON jobs (project_id, name, number)
-- next
CREATE INDEX ix_jobs_project_number ON jobs (project_id, number)
-- next
CREATE INDEX ix_jobs_project_state_number ON jobs (project_id, state, number)
-- next
CREATE INDEX ix_jobs_queue ON jobs (queue, state, priority, order_ms) WHERE state NOT IN ('succeeded', 'failed', 'cancelled')
-- next
CREATE INDEX ix_jobs_live_of ON jobs (project_id, user_id, kind) WHERE state NOT IN ('succeeded', 'failed', 'cancelled')
-- next
CREATE INDEX ix_jobs_unfinished ON jobs (state, number) WHERE state NOT IN ('succeeded', 'failed', 'cancelled')
-- next
CREATE INDEX ix_keys_project_id ON keys (project_id)
-- next
CREATE INDEX ix_keys_user_id ON keys (user_id)
-- next
CREATE INDEX ix_attempts_live ON attempts (state) WHERE state <> 'over'
-- next
CREATE INDEX ix_dependencies_after ON dependencies (after_id)
-- next
CREATE INDEX ix_checkpoints_removing ON checkpoints (removing_ms) WHERE removing_ms IS NOT NULL
-- next
CREATE INDEX ix_starts_source ON starts (source_id)
-- next
CREATE INDEX ix_artifacts_job ON artifacts (job_id)
-- next
CREATE INDEX ix_objects_owner ON objects (owner, path)
-- next
CREATE INDEX ix_objects_job ON objects (job_id)
-- next
CREATE INDEX ix_objects_removing ON objects (removing_ms)
-- next
CREATE INDEX ix_model_versions_project_run ON model_versions (project_id, run_id)
-- next
CREATE INDEX ix_model_moves_model ON model_moves (model_id, id)
-- next
CREATE INDEX ix_studies_live ON studies (state) WHERE state IN ('running', 'stopping')
-- next
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit rows are never removed'); END
-- next
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit WHEN OLD.number IS NOT NULL OR NEW.number IS NULL OR NOT (NEW.id IS OLD.id AND NEW.project_id IS OLD.project_id AND NEW.at_ms IS OLD.at_ms AND NEW.project_name IS OLD.project_name AND NEW.user_id IS OLD.user_id AND NEW.user_name IS OLD.user_name AND NEW.credential IS OLD.credential AND NEW.source IS OLD.source AND NEW.request_id IS OLD.request_id AND NEW.action IS OLD.action AND NEW.object IS OLD.object AND NEW.outcome IS OLD.outcome AND NEW.times IS OLD.times AND NEW.details IS OLD.details) BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END
-- next
CREATE INDEX ix_holdings_job ON holdings (job_id)
-- next
CREATE INDEX ix_ledger_from ON ledger (from_ms)
-- next
CREATE INDEX ix_ledger_project_from ON ledger (project_id, from_ms)
-- next
CREATE TRIGGER holdings_refuses_update BEFORE UPDATE ON holdings BEGIN SELECT RAISE(ABORT, 'holdings is append-only'); END
-- next
CREATE TRIGGER holdings_refuses_delete BEFORE DELETE ON holdings BEGIN SELECT RAISE(ABORT, 'holdings is append-only'); END
-- next
CREATE TRIGGER ledger_refuses_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END
-- next
CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END
-- next
CREATE TRIGGER prices_refuses_update BEFORE UPDATE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END
-- next
CREATE TRIGGER prices_refuses_delete BEFORE DELETE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END
-- next
DELETE FROM "sqlite_sequence"