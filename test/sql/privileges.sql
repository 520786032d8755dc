-- Every function, relation and type of the extension: attributes and grants. A change here is a change of the interface.
\pset format unaligned
SET search_path = pg_catalog;
SET client_min_messages = warning;
SELECT p.proname, l.lanname AS language, p.provolatile AS volatile, p.proparallel AS parallel, p.proisstrict AS strict, p.prosecdef AS definer, p.proconfig AS config,
       p.proretset AS set, format_type(p.prorettype, NULL) AS returns, replace(coalesce(p.proacl::text, 'default'), p.proowner::regrole::text, 'OWNER') AS grants
  FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid JOIN pg_language l ON l.oid = p.prolang
 WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'sqlstreams') AND d.deptype = 'e'
 ORDER BY p.proname COLLATE "C";
SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments
  FROM pg_proc p WHERE p.pronamespace = 'sqlstreams'::regnamespace AND p.proname NOT LIKE 'list\_%' ORDER BY p.proname COLLATE "C";
SELECT c.relname, c.relkind, (SELECT string_agg(CASE grantee WHEN 0 THEN 'public' ELSE grantee::regrole::text END || ': ' || privilege_type, ', ')
          FROM aclexplode(c.relacl) WHERE grantee <> c.relowner) AS grants, e.extcondition IS NOT NULL AS dumped
  FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
  LEFT JOIN (SELECT unnest(extconfig) AS oid, unnest(extcondition) AS extcondition FROM pg_extension WHERE extname = 'sqlstreams') e ON e.oid = c.oid
 WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'sqlstreams') AND d.deptype = 'e'
 ORDER BY c.relname COLLATE "C";
SELECT replace(nspacl::text, nspowner::regrole::text, 'OWNER') AS schema_grants FROM pg_namespace WHERE nspname = 'sqlstreams';
SELECT extrelocatable AS relocatable, extnamespace::regnamespace AS schema FROM pg_extension WHERE extname = 'sqlstreams';
-- no overloads, nothing without a comment
SELECT proname FROM pg_proc WHERE pronamespace = 'sqlstreams'::regnamespace GROUP BY 1 HAVING count(*) > 1;
SELECT d.classid::regclass, d.objid::text AS uncommented FROM pg_depend d
 WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'sqlstreams') AND d.deptype = 'e'
   AND d.classid IN ('pg_proc'::regclass, 'pg_namespace'::regclass, 'pg_class'::regclass)
   AND NOT EXISTS (SELECT FROM pg_class c WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('S', 'c'))
   AND NOT EXISTS (SELECT FROM pg_description c WHERE c.classoid = d.classid AND c.objoid = d.objid AND c.objsubid = 0);
